"""The operator is killed at random moments: the end is always that of an undisturbed run.

Compared are all children (names, labels, owners, specs, keys of the Secret), conditions (type,
status, reason) and replicas. Most rounds use pods that never start, whose children are the same.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

import pytest

from children import children, end_state, wait_state
from infd import broken_infd, infd
from kube import Kube, Object, wait_for
from operator_control import Killer, OperatorControl

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900, func_only=True)]

LATEST_KILL = 1.5  # seconds after kubectl has spoken to the API server
SETTLE_SECONDS = 120
ALTERED = {
    "standby": {"maxReplicas": 0},
    "parallelism": {"pipeline": 2},
    "worker": {"ranksPerPod": 1},
}


@pytest.fixture(scope="module")
def killer(control: OperatorControl) -> Iterator[Killer]:
    with control.killable() as killer:
        yield killer


class Disturbed:
    """Commands with a kill of the operator at a random moment after each."""

    def __init__(self, kube: Kube, killer: Killer, seed: int) -> None:
        self.kube = kube
        self._killer = killer
        self._random = random.Random(seed)
        started = time.monotonic()
        kube.kubectl("get", "infd")
        self._kubectl_seconds = time.monotonic() - started

    def during(self, command: Callable[[], None], name: str) -> None:
        moment = self._random.uniform(0, LATEST_KILL)
        self._killer.kill_in(self._kubectl_seconds + moment)
        command()
        self._killer.killed()
        there = len(
            self.kube.listed("pods,services,networkpolicies", f"torpor.dev/deployment={name}")
        )
        print(f"killed after {moment:.2f} s with {there} children there")


def spec_of(images: dict[str, str]) -> Object:
    return broken_infd("victim", images["model"], **ALTERED)


@pytest.fixture(scope="module")
def expected(kube: Kube, killer: Killer, images: dict[str, str]) -> dict[int, str]:
    """End state by ``spec.replicas``, of an operator that nobody kills."""
    kube.apply(spec_of(images))
    states = {}
    for replicas in (1, 2):
        kube.scale("victim", replicas)
        states[replicas] = settled(kube, 3 * replicas)
    remove(kube)
    return states


def settled(kube: Kube, pods: int) -> str:
    """The state after which nothing comes any more."""
    wait_for(lambda: len(kube.pods("victim")) == pods, 60, lambda: "the pods are not made")
    kube.wait_reason("victim", "ModelNotFound", 60)
    deadline = time.monotonic() + SETTLE_SECONDS
    state = ""
    while state != (state := end_state(kube, "victim")):
        assert time.monotonic() < deadline, "it does not come to rest"
        time.sleep(4)
    return state


def remove(kube: Kube) -> None:
    uid = kube.get("infd", "victim")["metadata"]["uid"]
    kube.kubectl("delete", "infd", "victim", "--timeout=60s")
    wait_for(lambda: not children(kube, uid), 60, lambda: "children are left")


def one_round(
    disturbed: Disturbed,
    expected: dict[int, str],
    images: dict[str, str],
    *,
    scalings: tuple[int, ...],
) -> None:
    kube = disturbed.kube
    disturbed.during(lambda: kube.apply(spec_of(images)), "victim")
    wait_state(kube, "victim", expected[1], SETTLE_SECONDS)
    for replicas in scalings:
        disturbed.during(lambda wanted=replicas: kube.scale("victim", wanted), "victim")
        wait_state(kube, "victim", expected[replicas], SETTLE_SECONDS)
    uid = kube.get("infd", "victim")["metadata"]["uid"]
    disturbed.during(lambda: kube.kubectl("delete", "infd", "victim", "--wait=false"), "victim")
    wait_for(lambda: not children(kube, uid), 60, lambda: "children are left")
    time.sleep(3)
    assert not children(kube, uid), "children came back"


def test_kills_at_three_moments(
    kube: Kube, killer: Killer, expected: dict[int, str], images: dict[str, str]
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    one_round(Disturbed(kube, killer, seed), expected, images, scalings=(2,))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_kills_at_twenty_moments(
    kube: Kube, killer: Killer, expected: dict[int, str], images: dict[str, str], seed: int
) -> None:
    """Four moments for each seed."""
    one_round(Disturbed(kube, killer, seed), expected, images, scalings=(2, 1))


@pytest.mark.slow
def test_kills_while_a_model_starts_sleeps_and_wakes(
    kube: Kube, killer: Killer, images: dict[str, str]
) -> None:
    """The same with pods that run, compared with the run before."""
    disturbed = Disturbed(kube, killer, 7)
    disturbed.during(lambda: kube.apply(infd("real", images["model"])), "real")
    kube.wait_ready("real")
    uids = kube.uids("real")
    for replicas, reason in ((0, "Asleep"), (1, "Ready"), (0, "Asleep")):
        disturbed.during(lambda wanted=replicas: kube.scale("real", wanted), "real")
        kube.wait_reason("real", reason, 120)
        assert kube.uids("real") == uids
    kube.kubectl("delete", "infd", "real", "--timeout=60s")
