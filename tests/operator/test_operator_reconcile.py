"""Look, plan, carry out: order, repetition, refusals and errors, with a plan that is given."""

from __future__ import annotations

import json

import pytest

from memory_cluster import NAME, NAMESPACE, UID, child, deployment
from reconcile_world import DOWN, ENDING, KEY, POD, POLICY, QUOTA, SECRET, SERVICE, world
from torpor_operator.api_paths import checked
from torpor_operator.cluster_api import ClusterError, NamespaceEnding, NotFound
from torpor_operator.model import (
    EngineCall,
    Event,
    Manifest,
    Observed,
    Plan,
    PodRef,
)
from torpor_operator.workqueue import Outcome
from torpor_protocol.api import KIND


def test_keys_and_rules_come_before_pods_and_the_status_after_everything() -> None:
    old = child("Pod", "demo-0-engine")
    old["metadata"]["uid"] = "old"
    plan = Plan(
        apply=(SECRET, POLICY, SERVICE),
        delete=(PodRef("demo-0-engine", "old"),),
        create=(POD,),
        calls=(EngineCall(0, "10.0.0.1", "wake"),),
        status={"replicas": 1},
        events=(Event("Normal", "Ready", "It is ready."),),
        requeue_after=5.0,
    )
    here = world(plan, old)
    assert here.run() == Outcome(5.0)
    event = here.writes.pop()
    assert here.writes == [
        "apply Secret/demo-keys",
        "apply NetworkPolicy/demo-engine",
        "apply Service/demo-pods",
        "delete Pod/demo-0-engine",
        "create Pod/demo-0-engine",
        f"status {KIND}/demo",
    ]
    assert event.startswith("create Event/demo.")
    assert here.calls == list(plan.calls)
    assert here.added == [KEY], "the end of a call leads to another look"


@pytest.mark.parametrize("guard", [SECRET, POLICY], ids=["Secret", "NetworkPolicy"])
@pytest.mark.parametrize("error", [QUOTA, DOWN], ids=["refused", "down"])
def test_no_pod_starts_without_its_keys_and_rules(guard: Manifest, error: ClusterError) -> None:
    here = world(Plan(apply=(SECRET, POLICY), create=(POD,)))
    what = f"apply {guard['kind']}/{guard['metadata']['name']}"
    here.cluster.failures[what] = [error]
    if error is DOWN:
        with pytest.raises(ClusterError):
            here.run()
    else:
        here.run()
    assert not any(each.startswith("create Pod") for each in here.writes)
    here.time += 60.0
    here.run()
    assert "create Pod/demo-0-engine" in here.writes


def test_an_error_is_raised_after_the_rest_was_done() -> None:
    here = world(Plan(apply=(SERVICE,), create=(POD,), status={"replicas": 1}))
    here.cluster.failures["apply Service/demo-pods"] = [DOWN]
    with pytest.raises(ClusterError, match="away"):
        here.run()
    assert here.writes == [
        "apply Service/demo-pods",
        "create Pod/demo-0-engine",
        f"status {KIND}/demo",
    ]


def test_a_refusal_is_told_to_the_next_plan_and_tried_again_after_a_pause() -> None:
    here = world(Plan(create=(POD,), requeue_after=50.0))
    here.cluster.failures["create Pod/demo-0-engine"] = [QUOTA, QUOTA]
    assert here.run() == Outcome(0.0), "the status has to tell it at once"
    outcome = here.run()
    assert here.observed[-1].refused == {"Pod/demo-0-engine": "exceeded quota: gpus"}
    assert here.writes == [], "it is not tried again at once"
    assert outcome.requeue_after is not None
    here.time += outcome.requeue_after
    assert here.run().requeue_after != 0.0, "the same words are no news"
    assert here.writes == ["create Pod/demo-0-engine"]
    here.time += 60.0
    assert here.run() == Outcome(50.0)
    here.run()
    assert here.observed[-1].refused == {}


def test_a_pod_of_ours_that_exists_already_is_no_error() -> None:
    here = world(Plan(create=(POD,)), POD)
    assert here.run() == Outcome(None)
    assert here.observed[-1].taken == frozenset()


def test_a_pod_of_somebody_else_is_told_and_the_name_may_become_free() -> None:
    foreign = child("Pod", "demo-0-engine", owner="somebody")
    here = world(Plan(create=(POD,)), foreign)
    assert here.run() == Outcome(0.0)
    here.run()
    assert here.observed[-1].taken == {"Pod/demo-0-engine"}
    here.cluster.remove("Pod", "demo-0-engine")
    here.run()
    assert here.observed[-1].taken == frozenset()


def test_a_pod_that_lost_the_labels_by_which_it_is_listed_goes() -> None:
    hidden = child("Pod", "demo-0-engine")
    hidden["metadata"]["labels"] = {}
    here = world(Plan(create=(POD,)), hidden)
    here.run()
    assert here.writes == ["create Pod/demo-0-engine", "delete Pod/demo-0-engine"]
    here.run()
    assert here.writes == ["create Pod/demo-0-engine"]


def test_the_status_is_written_where_it_differs_and_only_then() -> None:
    here = world(Plan(status={"replicas": 1, "loadProgress": {"phase": "Loading"}}))
    here.run()
    assert here.writes == [f"status {KIND}/demo"]
    here.run()
    assert here.writes == []
    here.planner = lambda _: Plan(status={"replicas": 1, "loadProgress": None})
    here.run()
    assert here.cluster.objects[(KIND, NAMESPACE, NAME)]["status"] == {"replicas": 1}
    here.run()
    assert here.writes == []


def test_a_server_that_stores_another_status_is_not_argued_with() -> None:
    here = world(Plan(status={"replicas": 1, "novelty": True}))
    here.cluster.dropped = frozenset({"novelty"})
    here.run()
    here.run()
    assert here.writes == []
    here.cluster.objects[(KIND, NAMESPACE, NAME)]["status"] = {}
    here.run()
    assert here.writes == [f"status {KIND}/demo"]


def test_an_event_is_told_after_its_status_or_not_at_all() -> None:
    plan = Plan(status={"replicas": 1}, events=(Event("Warning", "RankLost", "Rank 1."),))
    here = world(plan)
    here.cluster.failures[f"status {KIND}/demo"] = [DOWN]
    with pytest.raises(ClusterError):
        here.run()
    assert here.writes == [f"status {KIND}/demo"]


def test_a_deployment_that_is_gone_or_going_is_forgotten_and_nothing_is_written() -> None:
    here = world(Plan(create=(POD,)))
    here.run()
    here.cluster.put(deployment(deletionTimestamp="2026-01-31T12:00:00Z"))
    assert here.run() == Outcome(gone=True)
    assert here.writes == []
    assert UID in here.forgotten
    here.cluster.remove(KIND, NAME)
    assert here.run() == Outcome(gone=True)
    assert here.writes == []


def test_a_deployment_that_goes_while_it_is_worked_on_is_no_error() -> None:
    def planner(_: Observed) -> Plan:
        here.cluster.remove(KIND, NAME)
        return Plan(create=(POD,), status={"replicas": 1})

    here = world(planner)
    here.cluster.failures[f"status {KIND}/demo"] = [NotFound(404, "NotFound", "demo not found")]
    assert here.run() == Outcome(gone=True)
    assert UID in here.forgotten


def test_not_found_is_an_error_while_the_deployment_is_there() -> None:
    here = world(Plan(create=(POD,)))
    here.cluster.failures["create Pod/demo-0-engine"] = [NotFound(404, "NotFound", "no such kind")]
    with pytest.raises(NotFound, match="no such kind"):
        here.run()


def test_in_a_namespace_that_ends_nothing_more_is_tried_or_told() -> None:
    plan = Plan(
        apply=(SERVICE,),
        create=(POD,),
        status={"replicas": 1},
        events=(Event("Warning", "PodLost", "The pod is gone."),),
    )
    here = world(plan)
    here.cluster.failures["apply Service/demo-pods"] = [ENDING]
    assert here.run() == Outcome(gone=True)
    assert here.writes == ["apply Service/demo-pods"]


def test_the_answer_of_an_ending_namespace_is_told_from_other_refusals() -> None:
    cause = {"reason": "NamespaceTerminating", "field": "metadata.namespace"}
    answer = {"reason": "Forbidden", "message": "It ends.", "details": {"causes": [cause]}}
    with pytest.raises(NamespaceEnding, match="It ends"):
        checked("POST", "/x", 403, json.dumps(answer).encode())
    with pytest.raises(ClusterError) as refused:
        checked("POST", "/x", 403, b'{"message": "exceeded quota"}')
    assert refused.value.refusal and not isinstance(refused.value, NamespaceEnding)


def test_what_is_seen_are_own_pods_children_by_name_and_engines_with_an_address() -> None:
    running = child("Pod", "demo-0-engine", status={"phase": "Running", "podIP": "10.0.0.1"})
    foreign_pod = child("Pod", "stray", owner="somebody")
    foreign = child("Service", "demo", owner="")
    bare = child("NetworkPolicy", "demo-engine")
    for each in (foreign, bare):
        each["metadata"]["labels"] = {}
    here = world(Plan(), running, foreign_pod, foreign, bare, SERVICE)
    here.run()
    observed = here.observed[-1]
    assert [pod.name for pod in observed.pods] == ["demo-0-engine"]
    assert {(each.kind, each.name, each.owned) for each in observed.children} == {
        ("Service", "demo", False),
        ("NetworkPolicy", "demo-engine", True),
        ("Service", "demo-pods", True),
    }
    assert here.polled == ["10.0.0.1"]
    assert observed.engines[0].state == {"token": UID}


def test_how_long_an_engine_is_silent_is_told_until_it_answers() -> None:
    here = world(Plan(), child("Pod", "demo-0-engine", status={"podIP": "10.0.0.1"}))
    for here.time, here.silent in ((5, True), (6, True), (16, True), (17, False), (18, True)):
        here.run()
    assert [each.engines[0].silent for each in here.observed] == [0, 1, 11, 0, 0]


def test_a_pod_that_waits_for_a_volume_is_seen_with_the_warning_about_it() -> None:
    waiting = child(
        "Pod",
        "demo-0-engine",
        spec={"nodeName": "node"},
        status={
            "phase": "Pending",
            "containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}],
        },
    )
    waiting["metadata"]["uid"] = "waiting"
    here = world(Plan(), waiting)
    here.cluster.warnings["waiting"] = ("FailedMount", "configmap not found")
    here.run()
    assert here.observed[-1].pods[0].message == "configmap not found"
