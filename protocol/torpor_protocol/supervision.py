"""What a supervisor is told when it starts: one JSON line on its standard input.

Whoever brings a supervisor to life (the ``mp`` executor, a worker pod) writes this line and keeps
the pipe open; its end means that the one who started it has died.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from torpor_protocol.errors import ConfigError
from torpor_protocol.limits import MAX_RANKS
from torpor_protocol.rpc import Name, RankKeys

DEFAULT_PRELOAD = ("torch", "torch.distributed", "torpor_worker.worker")


class SupervisorSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``endpoint``: where the engine's ROUTER listens, ``ipc://`` or ``tcp://``.
    ``keys``: the supervisor's own CURVE keys; empty on ipc. ``devices``: ranks it can hold.
    ``interface``: network interface for ranks of this pod whose assignment names none.
    ``preload``: modules imported once, before any rank is forked; only a matter of speed."""

    endpoint: Name
    identity: Name
    devices: Annotated[int, msgspec.Meta(ge=1, le=MAX_RANKS)]
    deployment_uid: Name = ""
    replica: int = 0
    revision: Name = ""
    pod_uid: Name = ""
    pod_name: Name = ""
    address: Name = ""
    keys: RankKeys = RankKeys()
    interface: Name = ""
    preload: tuple[str, ...] = DEFAULT_PRELOAD


def encode_settings(settings: SupervisorSettings) -> bytes:
    """One line of JSON, its newline included."""
    return msgspec.json.encode(settings) + b"\n"


def decode_settings(line: bytes) -> SupervisorSettings:
    """Raises ConfigError when the line is no settings."""
    try:
        return msgspec.json.decode(line, type=SupervisorSettings)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(
            f"The supervisor's settings cannot be read: {error}.",
            "Write one JSON line of SupervisorSettings to its standard input and keep it open.",
        ) from None
