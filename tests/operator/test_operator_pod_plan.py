"""Which pods go and which are made."""

from __future__ import annotations

from typing import Any

import pytest

from operator_builders import NOW, SETTINGS, engine, engine_pod, observed, replica_pods, worker_pod
from torpor_operator.model import Observed, Plan, PodRef, PodView
from torpor_operator.plan import plan


def decide(seen: Observed) -> Plan:
    return plan(seen, SETTINGS, NOW)


def created(decided: Plan) -> list[str]:
    return [manifest["metadata"]["name"] for manifest in decided.create]


@pytest.mark.parametrize(
    ("pod", "then"),
    [
        (worker_pod(phase="Failed", reason="PodLost"), PodRef("demo-0-worker-0", "u")),
        (worker_pod(phase="Unknown"), PodRef("demo-0-worker-0", "u", force=True)),
        (worker_pod(deleting=True, ends_at=NOW - 61), PodRef("demo-0-worker-0", "u", force=True)),
        (worker_pod(deleting=True, ends_at=NOW - 59), None),
        (worker_pod(phase="Pending", reason="ImagePullFailed"), None),
    ],
)
def test_lost_pods_go_and_are_made_when_their_name_is_free(
    pod: PodView, then: PodRef | None
) -> None:
    pod = PodView(**{**vars(pod), "uid": "u"})
    decided = decide(observed([engine_pod(), pod, worker_pod(0, 1)], {0: engine("Recovering")}))
    assert decided.delete == ((then,) if then else ())
    assert decided.create == ()
    without = decide(observed([engine_pod(), worker_pod(0, 1)], {0: engine("Recovering")}))
    assert created(without) == ["demo-0-worker-0"] and without.delete == ()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("demo-0-worker-0", {"role": "engine", "worker": -1, "replica": -1}),
        ("demo-0-worker-0", {"replica": 1}),
        ("demo-0-worker-0", {"worker": -1}),
        ("demo-0-engine", {"replica": -1}),
    ],
)
def test_a_pod_whose_labels_say_something_else_goes(name: str, change: dict[str, Any]) -> None:
    """Nobody would select it as what it is: no Service, no policy and no replica."""
    pods = [
        PodView(**{**vars(pod), **change}) if pod.name == name else pod for pod in replica_pods()
    ]
    decided = decide(observed(pods, {0: engine()}))
    assert [ref.name for ref in decided.delete] == [name]
    assert decided.create == ()


def test_an_engine_ends_before_its_workers() -> None:
    spec = {"replicas": 0, "standby": {"maxReplicas": 0}}
    first = decide(observed(replica_pods(), {0: engine()}, spec=spec))
    assert [ref.name for ref in first.delete] == ["demo-0-engine"]
    ending = [engine_pod(deleting=True, ends_at=NOW), *replica_pods()[1:]]
    assert decide(observed(ending, spec=spec)).delete == ()
    last = decide(observed(replica_pods()[1:], spec=spec))
    assert [ref.name for ref in last.delete] == ["demo-0-worker-0", "demo-0-worker-1"]
