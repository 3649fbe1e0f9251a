"""Conditions of a deployment: each one a pure function of what was found and decided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from torpor_operator.model import by_type, child_key
from torpor_operator.replica_view import loss_of
from torpor_operator.situation import Situation
from torpor_operator.words import fit, sentence


class Verdict(NamedTuple):
    """A condition without its times."""

    holds: bool
    reason: str
    message: str


NOTHING = "No replica exists, and none is wanted. Raise spec.replicas or spec.standby.minReplicas."


def ready(situation: Situation) -> Verdict:
    """The roll-up: True only when a request would be answered, and by as many as are wanted."""
    for part in (resources_created, workers_ready, model_loaded, engine_ready):
        verdict = part(situation)
        blocked = verdict.reason == "NameTaken"
        if not verdict.holds and (blocked or not situation.answers):
            return verdict
    if not situation.deployment.wanted and not situation.serving:
        return Verdict(True, "Asleep", "A request wakes the replica that is on call.")
    count, wanted = len(situation.serving), situation.deployment.wanted
    return Verdict(True, "Ready", f"{count} of {max(wanted, 1)} wanted replicas take requests.")


def resources_created(situation: Situation) -> Verdict:
    observed = situation.observed
    taken = [*situation.taken, *_taken_pods(situation)]
    if taken:
        told = f"{taken[0]} belongs to somebody else and is left alone."
        return Verdict(False, "NameTaken", f"{told} Remove it, or rename this deployment.")
    if observed.refused:
        key = min(observed.refused)
        words = observed.refused[key]
        reason = "QuotaExceeded" if "quota" in words.lower() else "InvalidSpec"
        return Verdict(False, reason, f"{key} was refused: {sentence(words)}")
    missing = len(situation.pods.missing) + situation.lacking
    if missing:
        return Verdict(False, "Waiting", f"{missing} objects are being created.")
    if not situation.roles.members:
        return Verdict(True, "Created", "Everything but pods exists, for no replica is wanted.")
    return Verdict(True, "Created", "All objects exist.")


def _taken_pods(situation: Situation) -> list[str]:
    keys = [child_key("Pod", name) for name in situation.pods.missing]
    return [key for key in keys if key in situation.observed.taken]


def workers_ready(situation: Situation) -> Verdict:
    members, each = situation.members, situation.deployment.workers
    if not members:
        return Verdict(False, "Waiting", NOTHING)
    pods = [pod for replica in members for pod in replica.workers.values()]
    troubled = [pod for pod in pods if pod.reason]
    if troubled:
        first = min(troubled, key=lambda pod: (pod.replica, pod.worker))
        return Verdict(False, first.reason, first.message)
    running = sum(pod.ready and not pod.deleting for pod in pods)
    told = f"{running} of {each * len(members)} worker pods run."
    if running == each * len(members):
        return Verdict(True, "Ready", told)
    # A pod that takes the place of a lost one only starts; what a user asks is why.
    lost = next((replica for replica in members if replica.recovering and replica.reason), None)
    if lost is not None:
        return Verdict(False, lost.reason, f"{told} {lost.message}".strip())
    return Verdict(False, "Starting", told)


def model_loaded(situation: Situation) -> Verdict:
    members = situation.members
    if not members:
        return Verdict(False, "Waiting", NOTHING)
    loaded = sum(replica.loaded for replica in members)
    told = f"{loaded} of {len(members)} replicas have loaded the model."
    behind = [replica for replica in members if not replica.loaded]
    if not behind:
        return Verdict(True, "Loaded", told)
    worst = situation.worst(behind) or behind[0]
    load = situation.load
    if worst.reason in ("", "WeightsLoading") and load and load["phase"] == "Loading":
        return Verdict(False, "WeightsLoading", f"{told} {_load_words(load)}")
    return Verdict(False, worst.reason or "Starting", f"{told} {worst.message}".strip())


def _load_words(load: dict[str, object]) -> str:
    left = f", {load['etaSeconds']} s left" if "etaSeconds" in load else ""
    return f"The furthest behind is at {load['percent']} %{left}."


def engine_ready(situation: Situation) -> Verdict:
    wanted = situation.deployment.wanted
    if not situation.members:
        return Verdict(False, "Waiting", NOTHING)
    if not wanted and not situation.serving:
        return _on_call_ready(situation)
    told = f"{len(situation.serving)} of {max(wanted, 1)} wanted engines take requests."
    if situation.answers:
        return Verdict(True, "Ready", told)
    worst = situation.worst(situation.wanted_awake)
    if worst is not None:
        return Verdict(False, worst.reason or "Starting", f"{told} {worst.message}".strip())
    asleep = any(replica.state == "Asleep" for replica in situation.wanted_awake)
    return Verdict(False, "Waking" if asleep else "Waiting", told)


def _on_call_ready(situation: Situation) -> Verdict:
    on_call = situation.on_call
    if situation.sleeps_on_call:
        return Verdict(True, "Asleep", "The engine on call holds requests and wakes.")
    asleep = on_call is not None and on_call.state == "Asleep"
    if asleep and not situation.deployment.spec.wake.on_request:
        return Verdict(False, "Asleep", "Requests do not wake it: spec.wake.onRequest is false.")
    worst = situation.worst(situation.members)
    if worst is not None:
        return Verdict(False, worst.reason or "Starting", worst.message)
    return Verdict(False, "Waiting", "No engine is on call yet.")


def asleep(situation: Situation) -> Verdict:
    members = situation.members
    if not members:
        return Verdict(False, "Awake", NOTHING)
    awake = [replica for replica in members if replica.awake]
    if awake:
        return Verdict(False, "Awake", f"{len(awake)} replicas are awake.")
    moving = [replica for replica in members if replica.state in ("Draining", "Sleeping", "Waking")]
    if moving:
        return Verdict(False, moving[0].state, f"Replica {moving[0].index} is {moving[0].state}.")
    sleeping = [replica for replica in members if replica.state == "Asleep"]
    if sleeping:
        return Verdict(True, "Asleep", f"{len(sleeping)} replicas are asleep.")
    return Verdict(False, "Starting", "No replica has started yet.")


def degraded(situation: Situation) -> Verdict:
    """Something that had worked does not; a start that takes its time is not that."""
    broken = [replica for replica in situation.members if replica.faulty]
    worst = situation.worst(broken)
    if worst is not None:
        told = worst.message or f"Replica {worst.index} is {worst.state}."
        return Verdict(True, worst.reason or "CrashLoop", told)
    pods = [pod for replica in situation.members for pod in replica.pods]
    lost = next((pod for pod in pods if pod.reason == "PodLost"), None)
    if lost is not None:
        return Verdict(True, "PodLost", lost.message)
    return Verdict(False, "Ready", _last_loss(situation))


def _last_loss(situation: Situation) -> str:
    """The newest loss that was recovered from, so that its cause can be read afterwards."""
    members, before = situation.members, by_type(situation.previous).get("Degraded", {})
    if before.get("reason") == "Ready" and any(replica.unheard for replica in members):
        return str(before["message"])
    losses = [(each.told["last_loss"], each) for each in members if each.told.get("last_loss")]
    if not losses:
        return "Nothing is broken."
    loss, replica = max(losses, key=lambda pair: pair[0].get("time", 0.0))
    seconds = loss.get("recover_seconds", -1.0)
    after = f" after {seconds:.1f} s" if seconds >= 0 else ""
    reason, message = loss_of(replica)
    cause = f"{reason}: {sentence(message)}"
    return fit(f"Replica {replica.index} lost its group and formed it anew{after}. {cause}")


# SpecValid and Progressing are made where the status is: one needs no situation, one needs times.
VERDICTS: Final[dict[str, Callable[[Situation], Verdict]]] = {
    "Ready": ready,
    "ResourcesCreated": resources_created,
    "WorkersReady": workers_ready,
    "ModelLoaded": model_loaded,
    "EngineReady": engine_ready,
    "Asleep": asleep,
    "Degraded": degraded,
}
