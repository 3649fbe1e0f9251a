"""Which replicas there shall be, which of them awake, and which one on call.

Decided anew from what is there at each look, so the order of preference is made to be stable: what
a decision brings about (falling asleep, ending) does not change the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torpor_operator.deployment import Deployment
from torpor_operator.model import EngineCall
from torpor_operator.replica_view import Replica


@dataclass(frozen=True)
class Roles:
    """Indices. ``awake`` and ``standby``: the members, existing or to be created; ``surplus``: to
    be ended; ``on_call``: the sleeping member that answers requests, None when one is awake."""

    awake: tuple[int, ...] = ()
    standby: tuple[int, ...] = ()
    surplus: tuple[int, ...] = ()
    on_call: int | None = None

    @property
    def members(self) -> tuple[int, ...]:
        return tuple(sorted((*self.awake, *self.standby)))


def choose_roles(deployment: Deployment, replicas: Mapping[int, Replica]) -> Roles:
    """Awake ones stay awake, sleeping ones are woken before others are waited for, and new ones
    are made only when too few are left; the rest goes to sleep or ends."""
    wanted, standby = deployment.wanted, deployment.spec.standby
    revision = deployment.revision
    order = sorted(
        replicas.values(),
        key=lambda replica: (_rank(replica), replica.stale(revision), replica.index),
    )
    present = [replica.index for replica in order]
    fresh = _free(replicas)
    awake = present[:wanted]
    awake += [next(fresh) for _ in range(wanted - len(awake))]
    asleep = present[wanted : wanted + standby.max_replicas]
    asleep += [next(fresh) for _ in range(standby.min_replicas - len(asleep))]
    return Roles(
        awake=tuple(sorted(awake)),
        standby=tuple(sorted(asleep)),
        surplus=tuple(sorted(present[wanted + standby.max_replicas :])),
        on_call=_on_call(replicas, awake, asleep),
    )


def engine_calls(
    deployment: Deployment,
    replicas: Mapping[int, Replica],
    roles: Roles,
    going: frozenset[int] = frozenset(),
) -> list[EngineCall]:
    """What the engines have to be told. One leaves the Service when another is in it, and is out of
    it before it sleeps: what still came to it would have to wait for it to wake again. ``going``:
    replicas whose engines this plan takes away."""
    covered = _covered(deployment, replicas, roles, going)
    calls: list[EngineCall] = []
    for index in roles.members:
        replica = replicas.get(index)
        if index in going or replica is None or not replica.told or replica.engine is None:
            continue
        ip = replica.engine.ip
        wanted = index in roles.awake or index == roles.on_call
        if replica.called != wanted and (wanted or covered):
            calls.append(EngineCall(index, ip, "on_call", value=wanted))
        if index in roles.awake and _needs_wake(replica):
            calls.append(EngineCall(index, ip, "wake"))
        if index in roles.standby and _may_sleep(replica, on_call=index == roles.on_call):
            calls.append(EngineCall(index, ip, "sleep", level=deployment.spec.standby.level))
    return calls


def next_to_replace(
    deployment: Deployment, replicas: Mapping[int, Replica], roles: Roles
) -> frozenset[int]:
    """Members of another revision whose pods may go now: those that serve nobody at once, the
    others one at a time and only while every other member is well. Sleeping ones come first."""
    members = [replicas[index] for index in roles.members if index in replicas]
    stale = [replica for replica in members if replica.stale(deployment.revision)]
    useless = [replica.index for replica in stale if not _worth_waiting_for(deployment, replica)]
    well = [replica for replica in members if replica.steady]
    if useless or not stale or len(well) < len(roles.members):
        return frozenset(useless)
    order = sorted(
        stale, key=lambda replica: (replica.state != "Asleep", replica.ready, replica.index)
    )
    others = [replica for replica in members if replica is not order[0]]
    if any(replica.state == "Awake" and not replica.ready for replica in others):
        return frozenset()
    return frozenset({order[0].index})


def _worth_waiting_for(deployment: Deployment, replica: Replica) -> bool:
    """It serves, sleeps, or recovers by itself: pods made anew are of the new revision, so only
    a group that has lost none can form again."""
    whole = len(replica.workers) == deployment.workers
    alike = len({pod.revision for pod in replica.pods}) == 1
    heals = replica.recovering and whole and alike and not replica.blocked
    return replica.loaded or heals


def _rank(replica: Replica) -> int:
    """How much a replica is worth keeping awake; the smaller the more. One whose engine goes, or
    is gone, comes last: its end has begun, and no other may look better meanwhile."""
    if replica.engine is None or replica.engine.deleting:
        return 5
    if replica.state == "Awake" and replica.ready:
        return 0
    if replica.awake or replica.state == "Waking":
        return 1
    if replica.loaded:
        return 2
    return 4 if replica.blocked else 3


def _free(replicas: Mapping[int, Replica]) -> Iterator[int]:
    index = 0
    while True:
        if index not in replicas:
            yield index
        index += 1


def _on_call(replicas: Mapping[int, Replica], awake: list[int], asleep: list[int]) -> int | None:
    """Nobody while a wanted one is awake, wakes or may be woken; else the one that a request has
    woken, else the one that is on call, else the lowest that sleeps or is on its way there."""
    if any(replicas[index].awake or replicas[index].loaded for index in awake if index in replicas):
        return None
    there = [replicas[index] for index in sorted(asleep) if index in replicas]
    there = [replica for replica in there if replica.loaded or replica.recovering]
    return min(there, key=_call_rank).index if there else None


def _call_rank(replica: Replica) -> tuple[bool, bool, bool, int]:
    asleep = replica.state == "Asleep"
    woken = replica.woken_by_request and not asleep
    return not woken, not (replica.called and replica.ready), not asleep, replica.index


def _covered(
    deployment: Deployment,
    replicas: Mapping[int, Replica],
    roles: Roles,
    going: frozenset[int],
) -> bool:
    """Whether another takes the requests of a replica that goes off call, or none are taken."""
    for index in (*roles.awake, roles.on_call):
        replica = None if index is None or index in going else replicas.get(index)
        if replica is not None and replica.ready and replica.called:
            return True
    return not roles.awake and not deployment.spec.wake.on_request


def _may_sleep(replica: Replica, *, on_call: bool) -> bool:
    """The one on call that a request has woken sleeps by itself, when no more come."""
    if on_call:
        return replica.state == "Awake" and not replica.woken_by_request
    return replica.lifecycle == "Awake" and not (replica.called or replica.ready)


def _needs_wake(replica: Replica) -> bool:
    """Asleep; or awake only as long as requests come, which a call makes lasting."""
    awake = replica.lifecycle == "Awake"
    return replica.state == "Asleep" or (awake and replica.woken_by_request)
