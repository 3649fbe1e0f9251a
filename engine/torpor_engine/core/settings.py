"""What the API process tells the core process at its start, as one JSON line on standard input."""

from __future__ import annotations

import msgspec

from torpor_engine.executor.place import Place
from torpor_protocol.config import EngineConfig


class CoreSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``fd``: the core's end of the socket pair. ``run_dir``: private folder of this replica.

    ``place`` names the replica on the wire to its workers and the folder of its keys; the keys
    themselves are never handed on."""

    config: EngineConfig
    fd: int
    run_dir: str
    place: Place = Place()
