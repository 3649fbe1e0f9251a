"""How far loading is: ``status.loadProgress``, and whether it goes on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from torpor_operator.model import Manifest
from torpor_operator.replica_view import Replica

_PHASES: Final = ("Pulling", "Forming", "Loading", "WarmingUp")


def load_progress(members: Iterable[Replica], before: Manifest | None) -> Manifest | None:
    """Of the member that is the furthest behind; None when none is starting or waking. ``before``:
    what was told last, which one that did not answer this time keeps."""
    behind = [_of(member, before) for member in members if not member.steady and not member.blocked]
    known = [progress for progress in behind if progress is not None]
    return min(known, key=_place, default=None)


def advanced(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> bool:
    """Whether loading got further from one status to the next."""
    if before is None or after is None:
        return False
    return bool(after["loadedBytes"] > before.get("loadedBytes", 0))


def _place(progress: Manifest) -> tuple[int, int]:
    return _PHASES.index(progress["phase"]), progress["percent"]


def _of(replica: Replica, before: Manifest | None) -> Manifest | None:
    if replica.state in ("Draining", "Sleeping"):
        return None
    if replica.unheard:
        return before
    load = replica.told.get("load")
    if replica.state == "Pending":
        return _progress("Pulling", {})
    if replica.state == "Forming" or not load:
        return _progress("Forming", {})
    finished = load["bytes_done"] >= load["bytes_total"]
    return _progress("WarmingUp" if finished else "Loading", load)


def _progress(phase: str, load: Mapping[str, Any]) -> Manifest:
    done, total = int(load.get("bytes_done", 0)), int(load.get("bytes_total", 0))
    progress: Manifest = {
        "phase": phase,
        "percent": min(100 * done // total, 100) if total else 0,
        "loadedBytes": done,
        "totalBytes": total,
    }
    seconds = float(load.get("seconds", 0.0))
    if 0 < done < total and seconds > 0:
        progress["etaSeconds"] = round(seconds * (total - done) / done)
    return progress
