"""Plans and the conditions that go with them, for single situations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from operator_builders import (
    NOW,
    SETTINGS,
    by_type,
    engine,
    engine_pod,
    message_of,
    no_answer,
    observed,
    replica_pods,
    resource,
    worker_pod,
)
from torpor_operator.model import Child, EngineView, Manifest, Observed, Plan, PodView
from torpor_operator.plan import MOVING_SECONDS, SETTLED_SECONDS, plan
from torpor_operator.times import timestamp
from torpor_protocol.api import InferenceDeploymentStatus


def decide(seen: Observed, now: float = NOW) -> Plan:
    decided = plan(seen, SETTINGS, now)
    InferenceDeploymentStatus.from_wire(decided.status)
    return decided


def created(decided: Plan) -> list[str]:
    return [manifest["metadata"]["name"] for manifest in decided.create]


def test_a_new_resource_gets_everything() -> None:
    decided = decide(Observed(resource()))
    kinds = [manifest["kind"] for manifest in decided.apply]
    assert kinds[0] == "Secret"
    assert sorted(kinds[1:]) == [
        *("NetworkPolicy", "NetworkPolicy", "PodDisruptionBudget", "Service", "Service")
    ]
    assert created(decided) == ["demo-0-engine", "demo-0-worker-0", "demo-0-worker-1"]
    assert not decided.delete and not decided.calls
    assert decided.requeue_after == MOVING_SECONDS
    assert by_type(decided.status)["Ready"] == ("False", "Waiting")


def test_what_is_as_wanted_is_left_alone() -> None:
    first = decide(observed(replica_pods(), {0: engine()}))
    again = decide(observed(replica_pods(), {0: engine()}, status=first.status), NOW + 100.0)
    assert again.idle and again.status == first.status and again.events == ()
    assert again.requeue_after == SETTLED_SECONDS
    assert by_type(again.status) == {
        "Ready": ("True", "Ready"),
        "SpecValid": ("True", "Valid"),
        "ResourcesCreated": ("True", "Created"),
        "WorkersReady": ("True", "Ready"),
        "ModelLoaded": ("True", "Loaded"),
        "EngineReady": ("True", "Ready"),
        "Asleep": ("False", "Awake"),
        "Progressing": ("False", "Complete"),
        "Degraded": ("False", "Ready"),
    }
    status = again.status
    assert (status["replicas"], status["readyReplicas"], status["updatedReplicas"]) == (1, 1, 1)
    assert status["url"] == "http://demo.default.svc:8000"
    assert status["modelName"] == "smollm2"
    assert status["selector"] == "torpor.dev/deployment=demo,torpor.dev/role=engine"
    assert status["currentRevision"] == status["updateRevision"]


def test_deletion_is_left_to_the_garbage_collector() -> None:
    made = resource(status={"replicas": 1})
    made["metadata"]["deletionTimestamp"] = timestamp(NOW)
    assert plan(Observed(made), SETTINGS, NOW) == Plan(status={"replicas": 1})


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"model": {"source": "hf://org/name"}}, "not supported by this version"),
        ({"parallelism": {"tensor": 0}}, "spec.parallelism.tensor"),
    ],
)
def test_an_invalid_spec_changes_nothing_but_the_status(spec: Manifest, told: str) -> None:
    running = replica_pods()
    decided = decide(Observed(resource(**spec), pods=tuple(running)))
    assert decided.idle and decided.requeue_after == SETTLED_SECONDS
    assert by_type(decided.status)["SpecValid"] == ("False", "InvalidSpec")
    assert by_type(decided.status)["Ready"] == ("False", "InvalidSpec")
    assert told in message_of(decided.status, "SpecValid")
    assert [event.reason for event in decided.events] == ["InvalidSpec"]


LOSS = {"reason": "RankLost", "message": "Rank 1 was killed.", "time": NOW - 1, "group": "g"}
WAS_AWAKE = {"index": 0, "revision": "r", "state": "Awake", "restarts": 0}


@dataclass(frozen=True)
class Case:
    """``then``: conditions; ``told``: what the message of the first one holds."""

    pods: list[PodView]
    then: dict[str, tuple[str, str]]
    told: str = ""
    engines: dict[int, EngineView] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    status: Manifest | None = None


NO_GPU = {"phase": "Pending", "reason": "InsufficientGPU", "message": "No node takes the pod."}
STAGES = {
    "workers wait for a GPU": Case(
        [engine_pod(), worker_pod(0, 0, **NO_GPU), worker_pod(0, 1)],
        {
            "Ready": ("False", "InsufficientGPU"),
            "WorkersReady": ("False", "InsufficientGPU"),
            "Progressing": ("True", "InsufficientGPU"),
            "Degraded": ("False", "Ready"),
        },
        "No node takes the pod.",
        {0: engine("Starting")},
    ),
    "the group forms": Case(
        replica_pods(),
        {
            "Ready": ("False", "GroupForming"),
            "WorkersReady": ("True", "Ready"),
            "ModelLoaded": ("False", "GroupForming"),
            "Progressing": ("True", "GroupForming"),
        },
        "Worker 1 has not said hello.",
        {0: engine("Starting", waiting_for="Worker 1 has not said hello.")},
    ),
    "weights load": Case(
        replica_pods(),
        {"Ready": ("False", "WeightsLoading"), "ModelLoaded": ("False", "WeightsLoading")},
        "at 40 %, 3 s left",
        {0: engine("Starting", load={"bytes_done": 40, "bytes_total": 100, "seconds": 2.0})},
    ),
    "the model is missing": Case(
        [
            engine_pod(ready=False, reason="ModelNotFound", message="No folder.", exit_code=3),
            *replica_pods()[1:],
        ],
        {
            "Ready": ("False", "ModelNotFound"),
            "ModelLoaded": ("False", "ModelNotFound"),
            "Degraded": ("True", "ModelNotFound"),
        },
        "No folder.",
        {0: engine("Starting")},
    ),
    "a rank was lost": Case(
        [engine_pod(ready=False), *replica_pods()[1:]],
        {
            "Ready": ("False", "RankLost"),
            "Degraded": ("True", "RankLost"),
            "Asleep": ("False", "Awake"),
        },
        "Rank 1 was killed.",
        {0: engine("Recovering", last_loss=LOSS, restarts=1)},
    ),
    "a lost worker pod is made anew": Case(
        [engine_pod(ready=False), worker_pod(0, 0, ready=False), worker_pod(0, 1)],
        {"Ready": ("False", "RankLost"), "WorkersReady": ("False", "RankLost")},
        "1 of 2 worker pods run. Rank 1 was killed.",
        {0: engine("Recovering", last_loss=LOSS, restarts=1)},
    ),
    "a worker was killed for memory": Case(
        [engine_pod(ready=False), worker_pod(out_of_memory=True, started_at=NOW), worker_pod(0, 1)],
        {"Degraded": ("True", "OutOfMemory")},
        "memory limit",
        {0: engine("Recovering", last_loss=LOSS, restarts=1)},
    ),
    "a loss was recovered from": Case(
        replica_pods(),
        {"Degraded": ("False", "Ready"), "Ready": ("True", "Ready")},
        "after 2.5 s. RankLost: Rank 1 was killed.",
        {0: engine(last_loss=LOSS | {"recover_seconds": 2.5}, restarts=1)},
    ),
    "the engine pod was lost": Case(
        replica_pods()[1:],
        {"Degraded": ("True", "PodLost"), "ResourcesCreated": ("False", "Waiting")},
        "engine pod",
        status={"replicaStatuses": [WAS_AWAKE]},
    ),
    "the engine is stuck": Case(
        [engine_pod(ready=False), *replica_pods()[1:]],
        {"Degraded": ("True", "EngineStalled"), "Ready": ("False", "EngineStalled")},
        "does not answer",
        {0: no_answer(10.0)},
        status={"replicaStatuses": [WAS_AWAKE]},
    ),
    "asleep and on call": Case(
        replica_pods(),
        {
            "Ready": ("True", "Asleep"),
            "Asleep": ("True", "Asleep"),
            "EngineReady": ("True", "Asleep"),
            "Progressing": ("False", "Complete"),
        },
        "",
        {0: engine("Asleep")},
        {"replicas": 0},
    ),
    "asleep for good": Case(
        [engine_pod(ready=False), *replica_pods()[1:]],
        {"Ready": ("False", "Asleep"), "Asleep": ("True", "Asleep")},
        "onRequest",
        {0: engine("Asleep")},
        {"replicas": 0, "wake": {"onRequest": False}},
    ),
    "woken by a request": Case(
        replica_pods(),
        {"Ready": ("True", "Ready"), "Asleep": ("False", "Awake")},
        "",
        {0: engine(woken_by="request")},
        {"replicas": 0},
    ),
    "falling asleep": Case(
        replica_pods(),
        {"Asleep": ("False", "Draining"), "Progressing": ("True", "Draining")},
        "",
        {0: engine("Draining")},
        {"replicas": 0},
    ),
    "nothing is wanted": Case(
        [], {"Asleep": ("False", "Awake"), "Ready": ("False", "Waiting")}, "", {}, {"replicas": 0}
    ),
    "one of two is ready": Case(
        [*replica_pods(), *replica_pods(1)],
        {"Ready": ("False", "GroupForming"), "EngineReady": ("False", "GroupForming")},
        "",
        {0: engine(), 1: engine("Starting")},
        {"replicas": 2},
    ),
    "a rollout": Case(
        replica_pods(revision="old"),
        {"Progressing": ("True", "RollingOut"), "Ready": ("True", "Ready")},
        "",
        {0: engine()},
    ),
    "the engine failed": Case(
        replica_pods(),
        {"Ready": ("False", "RankLost"), "Degraded": ("True", "RankLost")},
        "lost 11 times",
        {0: engine("Failed", reason="RecoveryExhausted", message="It was lost 11 times.")},
    ),
}


@pytest.mark.parametrize("case", STAGES.values(), ids=STAGES)
def test_conditions(case: Case) -> None:
    seen = observed(case.pods, case.engines, spec=case.spec, status=case.status)
    decided = decide(seen)
    assert {kind: by_type(decided.status)[kind] for kind in case.then} == case.then
    assert case.told in message_of(decided.status, next(iter(case.then)))


def test_times_change_only_with_the_status() -> None:
    forming = decide(observed(replica_pods(), {0: engine("Starting")}))
    later = NOW + 50.0
    load = {"bytes_done": 1, "bytes_total": 2, "seconds": 1.0}
    seen = observed(replica_pods(), {0: engine("Starting", load=load)}, status=forming.status)
    loading = decide(seen, later)
    ready = {each["type"]: each for each in loading.status["conditions"]}["Ready"]
    assert ready["reason"] == "WeightsLoading"
    assert ready["lastTransitionTime"] == timestamp(NOW)
    assert loading.status["loadProgress"] == {
        **{"phase": "Loading", "percent": 50, "loadedBytes": 1, "totalBytes": 2, "etaSeconds": 1}
    }
    awake = decide(observed(replica_pods(), {0: engine()}, status=loading.status), later)
    ready = {each["type"]: each for each in awake.status["conditions"]}["Ready"]
    assert ready["lastTransitionTime"] == timestamp(later)
    assert "loadProgress" not in awake.status
    assert [(event.type, event.reason) for event in awake.events] == [("Normal", "Ready")]


def test_nothing_moved_for_too_long() -> None:
    spec = {"progressDeadlineSeconds": 60}
    revision = {"revision": decide(Observed(resource(**spec))).status["updateRevision"]}
    pods = replica_pods(**revision)

    def look(status: Manifest | None, now: float, **told: Any) -> Plan:
        return decide(
            observed(pods, {0: engine("Starting", **told)}, spec=spec, status=status), now
        )

    first = look(None, NOW)
    assert by_type(look(first.status, NOW + 59).status)["Progressing"][0] == "True"
    over = look(first.status, NOW + 61)
    assert by_type(over.status)["Progressing"] == ("False", "ProgressDeadlineExceeded")
    assert [event.reason for event in over.events] == ["ProgressDeadlineExceeded"]
    still = look(over.status, NOW + 500)
    assert still.status == over.status
    load = {"bytes_done": 5, "bytes_total": 9, "seconds": 1.0}
    loading = look(over.status, NOW + 501, load=load)
    moving = look(loading.status, NOW + 502, load=load | {"bytes_done": 6})
    assert by_type(moving.status)["Progressing"] == ("True", "WeightsLoading")


def test_events_are_told_once() -> None:
    well = decide(observed(replica_pods(), {0: engine()}))
    lost = {0: engine("Recovering", last_loss=LOSS, restarts=1)}
    pods = [engine_pod(ready=False), *replica_pods()[1:]]
    broken = decide(observed(pods, lost, status=well.status))
    assert [(event.type, event.reason) for event in broken.events] == [("Warning", "RankLost")]
    assert decide(observed(pods, lost, status=broken.status)).events == ()
    back = {0: engine(last_loss=LOSS | {"recover_seconds": 1.0}, restarts=1)}
    healed = decide(observed(replica_pods(), back, status=broken.status))
    assert {event.type for event in healed.events} == {"Normal"}


def test_a_loss_between_two_looks_is_told_too() -> None:
    well = decide(observed(replica_pods(), {0: engine(restarts=0)}))
    back = {0: engine(last_loss=LOSS | {"recover_seconds": 1.0}, restarts=1)}
    healed = decide(observed(replica_pods(), back, status=well.status))
    (event,) = healed.events
    assert event.reason == "RankLost" and "Rank 1 was killed." in event.message


FOREIGN: Manifest = {"metadata": {"name": "demo"}}


def test_a_service_of_somebody_else_is_left_alone() -> None:
    well = observed(replica_pods(), {0: engine()})
    others = tuple(
        Child(child.kind, child.name, FOREIGN, False)
        if (child.kind, child.name) == ("Service", "demo")
        else child
        for child in well.children
    )
    decided = decide(observed(replica_pods(), {0: engine()}, children=others))
    assert decided.apply == ()
    assert by_type(decided.status)["ResourcesCreated"] == ("False", "NameTaken")
    assert by_type(decided.status)["Ready"] == ("False", "NameTaken")
    assert "Service/demo" in message_of(decided.status, "ResourcesCreated")
    assert decided.status["url"] == ""
    assert [event.reason for event in decided.events] == ["NameTaken"]


def test_without_its_own_secret_no_pod_is_made() -> None:
    decided = decide(Observed(resource(), taken=frozenset({"Secret/demo-keys"})))
    assert decided.create == ()
    assert "Secret" not in {manifest["kind"] for manifest in decided.apply}
    assert by_type(decided.status)["ResourcesCreated"] == ("False", "NameTaken")


def test_a_taken_pod_name() -> None:
    decided = decide(observed([], taken=frozenset({"Pod/demo-0-engine"})))
    assert created(decided) == ["demo-0-worker-0", "demo-0-worker-1"]
    assert by_type(decided.status)["ResourcesCreated"] == ("False", "NameTaken")


def test_what_the_api_server_refuses_is_told_and_tried_again() -> None:
    words = 'pods "demo-0-engine" is forbidden: exceeded quota: small'
    refused = {f"Pod/{name}": words for name in ("demo-0-engine", "demo-0-worker-0")}
    decided = decide(observed([worker_pod(0, 1)], refused=refused))
    assert created(decided) == ["demo-0-engine", "demo-0-worker-0"]
    assert by_type(decided.status)["ResourcesCreated"] == ("False", "QuotaExceeded")
    assert "exceeded quota" in message_of(decided.status, "ResourcesCreated")


def test_drift_is_corrected() -> None:
    well = observed(replica_pods(), {0: engine()})
    kept = tuple(child for child in well.children if child.name != "demo-pods")
    decided = decide(observed(replica_pods(), {0: engine()}, children=kept))
    assert [each["metadata"]["name"] for each in decided.apply] == ["demo-pods"]
    assert decided.create == () and decided.delete == ()
