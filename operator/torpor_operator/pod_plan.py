"""Which pods are to be made and which are to go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from torpor_operator import manifests, names
from torpor_operator.deployment import Deployment
from torpor_operator.model import Manifest, Observed, PodRef, PodView, child_key
from torpor_operator.replica_view import Replica, name_by_labels
from torpor_operator.replicas import Roles
from torpor_operator.settings import Settings

# A deletion that has taken so much longer than its grace is not carried out by a kubelet any more.
OVERDUE_SECONDS: Final = 60.0
_ENDED: Final = frozenset({"Failed", "Succeeded", "Unknown"})


@dataclass(frozen=True)
class PodPlan:
    """``missing``: names that are wanted and not there, whether or not they can be made now."""

    create: tuple[Manifest, ...] = ()
    delete: tuple[PodRef, ...] = ()
    missing: tuple[str, ...] = ()


def plan_pods(
    deployment: Deployment,
    observed: Observed,
    replicas: Mapping[int, Replica],
    roles: Roles,
    replacing: frozenset[int],
    settings: Settings,
    now: float,
) -> PodPlan:
    wanted = _wanted(deployment, roles)
    there = {pod.name: pod for pod in observed.pods}
    delete = [
        ref
        for pod in sorted(observed.pods, key=lambda pod: pod.name)
        if (ref := _away(pod, pod.name in wanted, deployment, replicas, roles, replacing, now))
    ]
    missing = [name for name in wanted if name not in there]
    # Pods must not mount keys that somebody else has put into a Secret of that name.
    foreign = child_key("Secret", names.keys_secret(deployment.name)) in observed.taken
    free = [name for name in missing if child_key("Pod", name) not in observed.taken]
    create = [] if foreign else [_build(deployment, *wanted[name], settings) for name in free]
    return PodPlan(tuple(create), tuple(delete), tuple(missing))


def _wanted(deployment: Deployment, roles: Roles) -> dict[str, tuple[int, int]]:
    """Name -> replica and worker, -1 for the engine."""
    wanted = {}
    for index in roles.members:
        wanted[names.engine_pod(deployment.name, index)] = (index, -1)
        for worker in range(deployment.workers):
            wanted[names.worker_pod(deployment.name, index, worker)] = (index, worker)
    return wanted


def _build(deployment: Deployment, replica: int, worker: int, settings: Settings) -> Manifest:
    if worker < 0:
        return manifests.engine_pod(deployment, replica, settings)
    return manifests.worker_pod(deployment, replica, worker, settings)


def _away(
    pod: PodView,
    wanted: bool,
    deployment: Deployment,
    replicas: Mapping[int, Replica],
    roles: Roles,
    replacing: frozenset[int],
    now: float,
) -> PodRef | None:
    if pod.deleting:
        overdue = pod.ends_at > 0 and now > pod.ends_at + OVERDUE_SECONDS
        return PodRef(pod.name, pod.uid, force=True) if overdue else None
    if pod.phase in _ENDED:
        return PodRef(pod.name, pod.uid, force=pod.phase == "Unknown")
    old = pod.revision != deployment.revision
    labelled = pod.name == name_by_labels(deployment, pod)
    if wanted and labelled and not (old and pod.replica in replacing):
        return None
    if pod.role == names.WORKER and _engine_lingers(pod.replica, deployment, replicas, roles):
        return None
    return PodRef(pod.name, pod.uid)


def _engine_lingers(
    index: int, deployment: Deployment, replicas: Mapping[int, Replica], roles: Roles
) -> bool:
    """The replica's engine is to end too but is not gone yet: it may have requests to finish."""
    engine = replicas[index].engine if index in replicas else None
    if engine is None or engine.phase in _ENDED:
        return False
    return index not in roles.members or engine.revision != deployment.revision
