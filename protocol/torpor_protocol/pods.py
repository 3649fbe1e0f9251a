"""What the pods of a replica are told: environment variables and mounted key files.

The operator writes them, engine and worker read them. The names of the pods are here too, because
the operator creates the pods, and the engine admits exactly the workers of these names.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from torpor_protocol.errors import ConfigError
from torpor_protocol.limits import MAX_RANKS, MAX_SETTINGS_BYTES
from torpor_protocol.rpc import RankKeys
from torpor_protocol.transport.keys import CurveKeys, check_key
from torpor_protocol.words import shorten

CLIENT_PORT: Final = 8000
ADMIN_PORT: Final = 8001
WIRE_PORT: Final = 7070

KEYS_FOLDER: Final = "/run/torpor/keys"
ENGINE_FILE: Final = "engine.json"
WORKER_FILE: Final = "worker.json"
TOKEN_FILE: Final = "admin-token"

DEPLOYMENT: Final = "TORPOR_DEPLOYMENT"
DEPLOYMENT_UID: Final = "TORPOR_DEPLOYMENT_UID"
REPLICA: Final = "TORPOR_REPLICA"
REVISION: Final = "TORPOR_REVISION"
POD_NAME: Final = "TORPOR_POD_NAME"
POD_UID: Final = "TORPOR_POD_UID"
POD_IP: Final = "TORPOR_POD_IP"
MODEL_PATH: Final = "TORPOR_MODEL_PATH"
WORKER: Final = "TORPOR_WORKER"
DEVICES: Final = "TORPOR_DEVICES"
ENGINE: Final = "TORPOR_ENGINE"
# Not set by the operator: for tests and for images of one's own.
KEYS: Final = "TORPOR_KEYS"
CLIENT_PORT_VARIABLE: Final = "TORPOR_CLIENT_PORT"
ADMIN_PORT_VARIABLE: Final = "TORPOR_ADMIN_PORT"
WIRE_VARIABLE: Final = "TORPOR_WIRE"
PRELOAD: Final = "TORPOR_PRELOAD"

_FIX = "The operator sets it; a pod that is not one of its own has to set it as the operator does."
_MAX_INDEX = 10**6
_MAX_PORT = 65_535
T = TypeVar("T")


def engine_pod_name(deployment: str, replica: int) -> str:
    return f"{deployment}-{replica}-engine"


def worker_pod_name(deployment: str, replica: int, worker: int) -> str:
    return f"{deployment}-{replica}-worker-{worker}"


class PodPlace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which pod this is. ``revision``: hash of the fields that shape it. ``keys``: folder of its
    key files."""

    deployment_uid: str
    replica: int
    revision: str
    name: str
    uid: str
    ip: str
    keys: str


class EnginePod(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``deployment``: the resource as JSON. ``wire``: endpoint on which the workers are awaited;
    all interfaces, in the IP family of the pod."""

    place: PodPlace
    deployment: str
    model_path: str
    host: str
    client_port: int
    admin_port: int
    wire: str


class WorkerPod(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``engine``: endpoint of its engine, by DNS name. ``devices``: ranks that it holds.
    ``preload``: modules to import before ranks are forked; empty = the usual ones."""

    place: PodPlace
    worker: int
    devices: int
    engine: str
    preload: tuple[str, ...] = ()


class EngineKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of ``engine.json``: CURVE keys (Z85) of one replica's engine, and the public keys of
    its workers in the order of their indices."""

    public: str
    secret: str
    workers: list[str]

    def __repr__(self) -> str:
        return f"EngineKeys(public={self.public!r}, workers={self.workers!r})"


# Environment


def read_engine_pod(environ: Mapping[str, str]) -> EnginePod:
    """Raises ConfigError when a variable is missing or wrong."""
    place = _read_place(environ)
    host = "::" if ":" in place.ip else "0.0.0.0"
    shown = f"[{host}]" if ":" in host else host
    return EnginePod(
        place=place,
        deployment=_text(environ, DEPLOYMENT),
        model_path=_text(environ, MODEL_PATH),
        host=host,
        client_port=_number(environ, CLIENT_PORT_VARIABLE, 0, _MAX_PORT, CLIENT_PORT),
        admin_port=_number(environ, ADMIN_PORT_VARIABLE, 0, _MAX_PORT, ADMIN_PORT),
        wire=environ.get(WIRE_VARIABLE) or f"tcp://{shown}:{WIRE_PORT}",
    )


def read_worker_pod(environ: Mapping[str, str]) -> WorkerPod:
    """Raises ConfigError when a variable is missing or wrong."""
    return WorkerPod(
        place=_read_place(environ),
        worker=_number(environ, WORKER, 0, _MAX_INDEX),
        devices=_number(environ, DEVICES, 1, MAX_RANKS),
        engine=_text(environ, ENGINE),
        preload=tuple(filter(None, environ.get(PRELOAD, "").split(","))),
    )


def _read_place(environ: Mapping[str, str]) -> PodPlace:
    return PodPlace(
        deployment_uid=_text(environ, DEPLOYMENT_UID),
        replica=_number(environ, REPLICA, 0, _MAX_INDEX),
        revision=_text(environ, REVISION),
        name=_text(environ, POD_NAME),
        uid=_text(environ, POD_UID),
        ip=_text(environ, POD_IP),
        keys=environ.get(KEYS) or KEYS_FOLDER,
    )


def _text(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name, "")
    if not value:
        raise ConfigError(f"{name} is not set.", _FIX)
    return value


def _number(
    environ: Mapping[str, str], name: str, lowest: int, highest: int, default: int | None = None
) -> int:
    text = environ.get(name, "")
    if not text and default is not None:
        return default
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
    if not lowest <= value <= highest:
        raise ConfigError(
            f"{name} is {shorten(text)}, but must be a number from {lowest} to {highest}.", _FIX
        )
    return value


# Key files


def read_engine_keys(folder: Path) -> EngineKeys:
    """Raises ConfigError, which never repeats what the file holds."""
    path = folder / ENGINE_FILE
    keys = _decoded(path, EngineKeys)
    CurveKeys(keys.public, keys.secret)
    for worker, public in enumerate(keys.workers):
        check_key(public, f"public key of worker {worker} in {path}")
    return keys


def read_worker_keys(folder: Path) -> RankKeys:
    """Raises ConfigError, which never repeats what the file holds."""
    path = folder / WORKER_FILE
    keys = _decoded(path, RankKeys)
    CurveKeys(keys.public, keys.secret)
    check_key(keys.server, f"engine's public key in {path}")
    return keys


def read_token(folder: Path) -> str:
    """The bearer token of the admin port. Raises ConfigError."""
    path = folder / TOKEN_FILE
    try:
        token = _content(path).decode("ascii").strip()
    except UnicodeDecodeError:
        token = ""
    if not token.isprintable() or not token or " " in token:
        raise ConfigError(f"{path} holds no token.", "Write one line of printable ASCII.")
    return token


def _decoded(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(_content(path), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # msgspec's own words may quote the file.
        raise ConfigError(
            f"{path} does not hold the keys that it should.",
            "Let the operator write the Secret anew: delete it and wait.",
        ) from None


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_SETTINGS_BYTES * 2)
    except OSError as error:
        raise ConfigError(
            f"The key file {path} cannot be read: {error.strerror}.",
            f"Mount the deployment's Secret there, or name its folder in {KEYS}.",
        ) from None
    return content
