"""Events: what changed from one status to the next, once per transition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from torpor_operator.model import Event, Manifest, by_type
from torpor_operator.reasons import PROBLEMS

_TOLD: Final = ("SpecValid", "ResourcesCreated", "Degraded", "Ready", "Progressing")
# Whose good end is worth an event too; the others are only told when something is wrong.
_BOTH_WAYS: Final = frozenset({"SpecValid", "Ready", "Degraded"})


def events_of(previous: Manifest, status: Manifest) -> tuple[Event, ...]:
    """One for each condition of note that changed, and one for a group lost and formed anew
    between two looks. A problem that several conditions name is told once."""
    before, after = by_type(previous), by_type(status)
    events: dict[tuple[str, str], Event] = {}
    for kind in _TOLD:
        if kind not in after or not _is_news(kind, before.get(kind), after[kind]):
            continue
        event = _event(after[kind])
        about = "" if event.type == "Warning" else event.message
        events.setdefault((event.reason, about), event)
    if not events and _lost_a_group(previous, status):
        degraded = after["Degraded"]
        events["", ""] = Event("Warning", "RankLost", degraded["message"])
    return tuple(events.values())


def _event(condition: Mapping[str, Any]) -> Event:
    reason, message = condition["reason"], condition["message"]
    return Event("Warning" if reason in PROBLEMS else "Normal", reason, message)


def _is_news(kind: str, old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> bool:
    problem = new["reason"] in PROBLEMS
    if old is None:
        return problem
    if (old["status"], old["reason"]) == (new["status"], new["reason"]):
        return False
    if problem:
        return True
    # Steps of a start change the reason, not the status. Asleep and Ready are both Ready=True.
    turned = old["status"] != new["status"] or (kind == "Ready" and new["status"] == "True")
    return kind in _BOTH_WAYS and turned


def _lost_a_group(previous: Manifest, status: Manifest) -> bool:
    before = {
        each["index"]: each.get("restarts", 0) for each in previous.get("replicaStatuses") or []
    }
    return any(
        each["restarts"] > before.get(each["index"], each["restarts"])
        for each in status.get("replicaStatuses") or []
    )
