"""The Secret of keys: it may be written and not watched, so it is looked at when it matters."""

from __future__ import annotations

import pytest

from memory_cluster import child, deployment
from reconcile_world import DOWN, POD, SECRET, world
from torpor_operator.cluster_api import ClusterError
from torpor_operator.manifests import differs
from torpor_operator.model import Observed, Plan


def wants_secret(observed: Observed) -> Plan:
    """Applies it unless it was seen to be as it should."""
    seen = [each.manifest for each in observed.children if each.kind == "Secret"]
    return Plan(apply=() if seen and not differs(seen[0], SECRET) else (SECRET,))


def test_an_equal_secret_is_not_written_and_a_changed_one_is() -> None:
    here = world(wants_secret, SECRET)
    here.run()
    here.run()
    assert here.writes == []
    assert ("Secret", "demo-keys", True) in {
        (each.kind, each.name, each.owned) for each in here.observed[0].children
    }, "a new operator sees it before it plans"
    changed = world(wants_secret, child("Secret", "demo-keys", data={"admin-token": "eQ=="}))
    changed.run()
    assert changed.writes == ["apply Secret/demo-keys"]


def test_a_secret_that_could_not_be_written_is_not_taken_to_be_there() -> None:
    here = world(wants_secret)
    here.cluster.failures["apply Secret/demo-keys"] = [DOWN]
    with pytest.raises(ClusterError):
        here.run()
    here.run()
    assert here.writes == ["apply Secret/demo-keys"]
    here.run()
    assert here.writes == []


@pytest.mark.parametrize("part", ["all", "data", "labels"])
def test_a_secret_that_drifted_unseen_is_written_again_when_a_container_starts(part: str) -> None:
    here = world(wants_secret, POD)
    here.run()
    here.run()
    here.cluster.remove("Secret", "demo-keys")
    if part == "data":
        here.cluster.put(SECRET | {"data": {"admin-token": "eQ=="}})
    if part == "labels":
        here.cluster.put(SECRET | {"metadata": SECRET["metadata"] | {"labels": {}}})
    here.run()
    assert here.writes == [], "while nothing moves nobody looks"
    here.cluster.remove("Pod", "demo-0-engine")
    here.cluster.put(POD)  # with another uid
    here.run()
    assert here.writes == ["apply Secret/demo-keys"]
    here.run()
    assert here.writes == []


def test_a_secret_of_somebody_else_is_left_alone() -> None:
    foreign = child("Secret", "demo-keys", owner="", data={"password": "eA=="})
    here = world(Plan(apply=(SECRET,), create=(POD,)), foreign)
    here.run()
    here.run()
    assert here.writes == []
    assert here.observed[-1].taken == {"Secret/demo-keys"}
    here.cluster.remove("Secret", "demo-keys")
    here.time += 1000.0
    here.run()
    assert here.writes == ["apply Secret/demo-keys", "create Pod/demo-0-engine"]


def test_another_deployment_of_the_same_name_inherits_no_memory() -> None:
    here = world(wants_secret)
    here.run()
    here.run()
    assert here.observed[-1].children
    here.cluster.put(deployment(uid="another"))
    here.run()
    assert here.observed[-1].children == ()
