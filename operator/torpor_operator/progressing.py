"""The condition Progressing: on the way, there, or on the way for too long."""

from __future__ import annotations

from torpor_operator.conditions import Verdict
from torpor_operator.model import by_type
from torpor_operator.pods import unix_seconds
from torpor_operator.progress import advanced
from torpor_operator.situation import Situation
from torpor_operator.times import newest_transition
from torpor_operator.words import fit


def progressing(situation: Situation) -> Verdict:
    if situation.settled:
        return Verdict(False, "Complete", "Everything is as it is wanted.")
    under_way = _under_way(situation)
    if not _overdue(situation):
        return under_way
    limit = situation.deployment.spec.progress_deadline_seconds
    told = f"Nothing has moved for {limit} s. {under_way.message}"
    return Verdict(False, "ProgressDeadlineExceeded", fit(told))


def _under_way(situation: Situation) -> Verdict:
    if situation.taken:
        return Verdict(True, "NameTaken", f"{situation.taken[0]} belongs to somebody else.")
    if situation.observed.refused:
        return Verdict(True, "Waiting", "The API server refuses what is to be made.")
    worst = situation.worst(situation.members)
    if worst is not None and worst.blocked:
        return Verdict(True, worst.reason or "CrashLoop", worst.message)
    revision = situation.deployment.revision
    stale = sum(replica.stale(revision) for replica in situation.members)
    if stale:
        return Verdict(True, "RollingOut", f"{stale} replicas are of an older revision.")
    if worst is not None:
        return Verdict(True, worst.reason or "Starting", worst.message or worst.state)
    if situation.roles.surplus:
        return Verdict(True, "Draining", f"{len(situation.roles.surplus)} replicas are to end.")
    if any(replica.state == "Asleep" for replica in situation.wanted_awake):
        return Verdict(True, "Waking", "Wanted replicas are still asleep.")
    return Verdict(True, "Waiting", "Objects are being made or removed.")


def _overdue(situation: Situation) -> bool:
    """No condition has changed for too long, the generation is known and loading stands still."""
    previous = situation.previous
    conditions = by_type(previous)
    before = conditions.pop("Progressing", None)
    known = previous.get("observedGeneration") == situation.deployment.generation
    if before is None or not known or advanced(previous.get("loadProgress"), situation.load):
        return False
    others = newest_transition(conditions.values())
    own = unix_seconds(before.get("lastTransitionTime"))
    if before.get("reason") == "ProgressDeadlineExceeded":
        return others <= own  # it stays so until something else has changed
    limit = situation.deployment.spec.progress_deadline_seconds
    return before.get("status") == "True" and situation.now - max(others, own) > limit
