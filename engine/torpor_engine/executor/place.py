"""Where a replica is: what its supervisors are told of it, and what its executor finds them by."""

from __future__ import annotations

import msgspec


class Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``uid``: of the deployment. ``name``: of the deployment, which the pods' names begin with.
    ``revision``: the one that supervisors must have. ``keys``: folder of the engine's key file.
    ``wire``: endpoint to bind. On one machine only the first two mean anything."""

    uid: str = "local"
    replica: int = 0
    revision: str = ""
    name: str = ""
    keys: str = ""
    wire: str = ""
