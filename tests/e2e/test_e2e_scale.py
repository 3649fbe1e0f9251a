"""The number of awake replicas: a second one is made, and sleeps or ends when it is not wanted.

Somebody asks all the while, and no request fails: a replica leaves the Service before it sleeps or
ends.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cluster_kit import CLIENT
from infd import infd
from inside import Running
from kube import Kube, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900, func_only=True)]

NAME = "several"
READY, ASLEEP = "Awake", "Asleep"


@pytest.fixture(scope="module")
def several(kube: Kube, images: dict[str, str]) -> Iterator[str]:
    kube.apply(infd(NAME, images["model"]))
    kube.wait_ready(NAME, 600)
    yield NAME
    kube.kubectl("delete", "infd", NAME, "--timeout=60s")


@contextmanager
def asked_all_the_while(kube: Kube) -> Iterator[None]:
    """By one client that opens a connection for each request, and one that keeps its own."""
    body = {"model": NAME, "prompt": "Two birds", "max_tokens": 2, "temperature": 0}
    told = {"service": NAME, "body": body, "pause": 0.05}
    clients = [
        Running(kube, CLIENT, "keep_asking", told | {"keep": keep}) for keep in (False, True)
    ]
    try:
        yield
    finally:
        results = [client.finish() for client in clients]
    answers = {text for result in results for text in result["answers"]}
    for result in results:
        count = sum(result["answers"].values())
        print(f"{count} requests meanwhile, the longest took {result['longest']:.1f} s")
        assert count > 5, result
    assert len(answers) == 1 and answers.pop().startswith("200 "), results


def wait_states(kube: Kube, wanted: dict[int, str], seconds: float = 300) -> float:
    """Seconds until the replicas have these states, by index."""
    started = time.monotonic()
    wait_for(
        lambda: kube.replicas(NAME) == wanted,
        seconds,
        lambda: f"replicas are {kube.replicas(NAME)}, not {wanted}",
    )
    return time.monotonic() - started


def test_a_second_replica_is_made_sleeps_wakes_and_ends(kube: Kube, several: str) -> None:
    with asked_all_the_while(kube):
        scale_up_and_down(kube)


def scale_up_and_down(kube: Kube) -> None:
    first = kube.uids(NAME)
    kube.scale(NAME, 2)
    print(f"1 to 2, made: {wait_states(kube, {0: READY, 1: READY}):.1f} s")
    both = kube.uids(NAME)
    assert first.items() <= both.items() and len(both) == 2 * len(first)
    kube.scale(NAME, 1)
    print(f"2 to 1, put to sleep: {wait_states(kube, {0: READY, 1: ASLEEP}):.1f} s")
    assert kube.uids(NAME) == both, "the standby replica keeps its pods"
    kube.scale(NAME, 2)
    print(f"1 to 2, woken: {wait_states(kube, {0: READY, 1: READY}):.1f} s")
    assert kube.uids(NAME) == both
    kube.kubectl(
        "patch", "infd", NAME, "--type=merge", "-p", '{"spec":{"standby":{"maxReplicas":0}}}'
    )
    kube.scale(NAME, 1)
    print(f"2 to 1, ended: {wait_states(kube, {0: READY}):.1f} s")
    wait_for(
        lambda: kube.uids(NAME) == first,
        120,
        lambda: f"pods of the second replica stay, or the first one's went: {kube.uids(NAME)}",
    )
