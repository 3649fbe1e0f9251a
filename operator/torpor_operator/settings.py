"""What the operator itself is told: by environment variables and one file, once, at its start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, cast, get_args

from torpor_protocol.errors import ConfigError

PullPolicy = Literal["Always", "IfNotPresent", "Never"]

MASTER_KEY_BYTES: Final = 32
_RUNTIME_IMAGE: Final = "TORPOR_RUNTIME_IMAGE"
_PULL_POLICY: Final = "TORPOR_IMAGE_PULL_POLICY"
_PULL_SECRETS: Final = "TORPOR_IMAGE_PULL_SECRETS"
_NAMESPACE: Final = "TORPOR_NAMESPACE"
_WATCHED: Final = "TORPOR_WATCH_NAMESPACES"
_MASTER_KEY: Final = "TORPOR_MASTER_KEY_FILE"


@dataclass(frozen=True)
class Settings:
    """``namespace``: where the operator runs. ``namespaces``: those it serves; empty for all.
    ``master_key``: 32 bytes from which every key and token is derived; never printed."""

    runtime_image: str
    namespace: str
    master_key: bytes = field(repr=False)
    image_pull_policy: PullPolicy = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()

    @property
    def cluster_wide(self) -> bool:
        return not self.namespaces


def read_settings(environ: Mapping[str, str]) -> Settings:
    """From the variables that the chart sets. Raises ConfigError for what is missing or wrong."""
    policy = environ.get(_PULL_POLICY, "") or "IfNotPresent"
    if policy not in get_args(PullPolicy):
        allowed = ", ".join(get_args(PullPolicy))
        raise ConfigError(f"{_PULL_POLICY} is {policy}.", f"Set it to one of {allowed}.")
    return Settings(
        runtime_image=_required(environ, _RUNTIME_IMAGE),
        namespace=_required(environ, _NAMESPACE),
        master_key=_master_key(Path(_required(environ, _MASTER_KEY))),
        image_pull_policy=cast(PullPolicy, policy),
        image_pull_secrets=_names(environ, _PULL_SECRETS),
        namespaces=_names(environ, _WATCHED),
    )


def _required(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name, "")
    if not value:
        raise ConfigError(
            f"{name} is not set.", "Install the operator by its chart, which sets it."
        )
    return value


def _names(environ: Mapping[str, str], name: str) -> tuple[str, ...]:
    """A list with commas between; the order says nothing."""
    return tuple(sorted({each.strip() for each in environ.get(name, "").split(",")} - {""}))


def _master_key(path: Path) -> bytes:
    fix = f"Put {MASTER_KEY_BYTES} random bytes into the file that {_MASTER_KEY} names."
    try:
        key = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"The master key {path} cannot be read: {error.strerror}.", fix
        ) from error
    if len(key) != MASTER_KEY_BYTES:
        raise ConfigError(f"The master key {path} has {len(key)} bytes.", fix)
    return key
