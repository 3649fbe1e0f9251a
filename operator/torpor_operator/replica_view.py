"""One replica as its pods and its engine tell it: the state in which it is, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from torpor_operator import names
from torpor_operator.deployment import Deployment
from torpor_operator.model import EngineView, Observed, PodView
from torpor_operator.reasons import BLOCKING, FAULTS, REASONS, engine_reason
from torpor_operator.words import fit
from torpor_protocol.api import ReplicaState

# An engine that started longer ago than this and does not answer is taken to be as it was.
_YOUNG_SECONDS: Final = 15.0
_SILENT_SECONDS: Final = 5.0  # for so long; looks at one that rests are twice as far apart
_BY_LIFECYCLE: Final[dict[str, ReplicaState]] = {
    "Awake": "Awake",
    "Draining": "Draining",
    "Sleeping": "Sleeping",
    "Asleep": "Asleep",
    "Waking": "Waking",
    "Recovering": "Forming",
    "Failed": "Failed",
}
_LOADED: Final = frozenset({"Awake", "Draining", "Sleeping", "Asleep", "Waking"})
_STEADY: Final = frozenset({"Awake", "Asleep"})
# What only an engine tells, and so stays as it was while that does not answer.
_KEPT: Final = _LOADED | {"Forming", "Loading"}
# A container killed for memory starts again about when the engine notices the loss.
_SAME_LOSS_SECONDS: Final = 10.0


@dataclass(frozen=True)
class Replica:
    """``told``: the engine's own state, empty while it does not answer. ``reason``: from the
    closed list, empty when nothing is to be said; ``message`` belongs to it."""

    index: int
    engine: PodView | None = None
    workers: Mapping[int, PodView] = field(default_factory=dict)
    state: ReplicaState = "Pending"
    reason: str = ""
    message: str = ""
    told: Mapping[str, Any] = field(default_factory=dict)

    @property
    def pods(self) -> list[PodView]:
        return [*([self.engine] if self.engine else []), *self.workers.values()]

    @property
    def lifecycle(self) -> str:
        return str(self.told.get("lifecycle", ""))

    @property
    def recovering(self) -> bool:
        return self.lifecycle == "Recovering"

    @property
    def awake(self) -> bool:
        """It holds its model and takes requests, or does so again when its group has formed."""
        return self.state == "Awake" or self.recovering

    @property
    def loaded(self) -> bool:
        return self.state in _LOADED

    @property
    def unheard(self) -> bool:
        """Its engine did not answer this time, and it is taken to be as it was."""
        return not self.told and self.state in _KEPT

    @property
    def steady(self) -> bool:
        return self.state in _STEADY

    @property
    def blocked(self) -> bool:
        return self.state == "Failed" or (not self.loaded and self.reason in BLOCKING)

    @property
    def faulty(self) -> bool:
        """Something broke, as opposed to not having started yet."""
        return self.state == "Failed" or (not self.steady and self.reason in FAULTS)

    @property
    def ready(self) -> bool:
        """Whether its engine is in the client Service."""
        return self.engine is not None and self.engine.ready

    @property
    def called(self) -> bool:
        """Whether its engine has been told that requests shall come to it."""
        return bool(self.told.get("on_call", True))

    @property
    def woken_by_request(self) -> bool:
        return self.told.get("woken_by") == "request"

    def stale(self, revision: str) -> bool:
        """Whether a pod of it is of another revision."""
        return any(pod.revision != revision for pod in self.pods)


def view_replicas(deployment: Deployment, observed: Observed) -> dict[int, Replica]:
    """Every replica that has a pod with a name of ours, by index."""
    previous = {entry["index"]: entry for entry in observed.previous.get("replicaStatuses") or []}
    found: dict[int, Replica] = {}
    for pod in observed.pods:
        if pod.name != name_by_labels(deployment, pod):
            continue
        known = found.get(pod.replica, Replica(pod.replica))
        if pod.role == names.ENGINE:
            found[pod.replica] = replace(known, engine=pod)
        else:
            found[pod.replica] = replace(known, workers={**known.workers, pod.worker: pod})
    return {
        index: _judged(deployment, bare, observed.engines.get(index), previous.get(index, {}))
        for index, bare in sorted(found.items())
    }


def name_by_labels(deployment: Deployment, pod: PodView) -> str:
    """What a pod with its labels is called. A pod that is called otherwise has lost some: nobody
    selects it as what it is."""
    if pod.role == names.ENGINE:
        return names.engine_pod(deployment.name, pod.replica)
    return names.worker_pod(deployment.name, pod.replica, pod.worker)


def _judged(
    deployment: Deployment, bare: Replica, view: EngineView | None, previous: Mapping[str, Any]
) -> Replica:
    told: Mapping[str, Any] = (view.state if view else None) or {}
    engine = bare.engine
    if engine is None or engine.deleting:
        reason = _why_gone(deployment, bare, previous)
        words = "is ending" if engine else "does not exist"
        message = f"The engine pod of replica {bare.index} {words}."
        return replace(bare, reason=reason, message=message)
    if engine.reason and not _has_moved_on(engine, told):
        state: ReplicaState = "Failed" if engine.exit_code >= 0 else "Pending"
        return replace(bare, state=state, reason=engine.reason, message=fit(engine.message))
    if engine.phase != "Running":
        return replace(bare, message=engine.message)
    if not told:
        return _unanswered(bare, engine, view, previous)
    return _answered(replace(bare, told=told), deployment.workers)


def _why_gone(deployment: Deployment, bare: Replica, previous: Mapping[str, Any]) -> str:
    """Taken away for a new revision, lost after it had worked, or not there yet."""
    if bare.stale(deployment.revision):
        return "RollingOut"
    lost = previous.get("state") in _LOADED or previous.get("reason") == "PodLost"
    return "PodLost" if lost else ""


def _has_moved_on(engine: PodView, told: Mapping[str, Any]) -> bool:
    """A reason from the engine's last end is over as soon as it gets further than a start."""
    if engine.exit_code < 0 or engine.phase != "Running" or not told:
        return False
    return told.get("lifecycle") != "Starting" or bool(told.get("group") or told.get("load"))


def _unanswered(
    bare: Replica, engine: PodView, view: EngineView | None, previous: Mapping[str, Any]
) -> Replica:
    """For seconds that changes nothing, unless the engine has only just started: a network does
    not let a new operator through at once."""
    last, reason = previous.get("state", "Pending"), previous.get("reason") or ""
    if view is None or view.at - engine.started_at < _YOUNG_SECONDS:
        return replace(bare, message=f"The engine of replica {bare.index} does not answer yet.")
    lasting = view.silent > _SILENT_SECONDS
    if not engine.ready and ((lasting and last == "Awake") or reason == "EngineStalled"):
        message = f"The engine of replica {bare.index} does not answer any more."
        return replace(bare, state="Failed", reason="EngineStalled", message=message)
    silent = f"The engine of replica {bare.index} does not answer."
    if last in _KEPT or (last == "Failed" and not lasting):
        message = silent if lasting and last == "Awake" else previous.get("message", "")
        return replace(bare, state=cast(ReplicaState, last), reason=reason, message=message)
    return replace(bare, message=silent)


def _answered(replica: Replica, workers: int) -> Replica:
    told, lifecycle = replica.told, replica.lifecycle
    message = fit(str(told.get("message") or ""))
    reason = str(told.get("reason") or "")
    if lifecycle == "Starting":
        state: ReplicaState = "Loading" if told.get("load") else "Forming"
        reason, message = _starting(replica, state, workers)
        return replace(replica, state=state, reason=reason, message=message)
    state = _BY_LIFECYCLE.get(lifecycle, "Pending")
    if state == "Awake" and not replica.called:
        state, message = "Draining", f"Replica {replica.index} leaves the Service."
    if replica.recovering:
        reason, message = loss_of(replica)
        blocking = _worker_trouble(replica)
        if blocking is not None:
            reason, message = blocking.reason, fit(blocking.message)
    elif lifecycle == "Failed":
        reason = engine_reason(reason, message, "CrashLoop")
    elif state in _STEADY:
        reason = reason if reason in REASONS else ""
    else:
        reason = state  # Draining, Sleeping and Waking are reasons too
    return replace(replica, state=state, reason=reason, message=message)


def loss_of(replica: Replica) -> tuple[str, str]:
    """Reason and message of the newest loss of the replica's group, which may be recovered from;
    empty when it has lost none. What only the kubelet knows, a kill for memory, comes first."""
    loss = replica.told.get("last_loss") or {}
    if not loss and not replica.recovering:
        return "", ""
    at = float(loss.get("time", 0.0))
    for pod in replica.workers.values():
        if pod.out_of_memory and pod.started_at >= at - _SAME_LOSS_SECONDS:
            told = f"The container of {pod.name} used up its memory limit."
            return "OutOfMemory", f"{told} Raise the memory limit in spec.worker.resources."
    reason = str(loss.get("reason") or replica.told.get("reason") or "")
    message = fit(str(loss.get("message") or replica.told.get("message") or ""))
    return engine_reason(reason, message, "RankLost"), message


def _starting(replica: Replica, state: ReplicaState, workers: int) -> tuple[str, str]:
    trouble = _worker_trouble(replica)
    if trouble is not None:
        return trouble.reason, fit(trouble.message)
    if state == "Loading":
        return "WeightsLoading", f"Replica {replica.index} loads its weights."
    running = sum(pod.phase == "Running" and not pod.deleting for pod in replica.workers.values())
    waiting = fit(str(replica.told.get("waiting_for") or ""))
    told = f"Replica {replica.index} forms its group; {running} of {workers} worker pods run."
    return "GroupForming", f"{told} {waiting}".strip()


def _worker_trouble(replica: Replica) -> PodView | None:
    """The first worker pod with something wrong."""
    troubled = (replica.workers[index] for index in sorted(replica.workers))
    return next((pod for pod in troubled if pod.reason), None)
