"""A stream through the Service survives every loss but that of its engine pod."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator

import pytest

from cluster_stream import ClusterStream
from infd import SYSTEM, exhaust_memory, infd, signal_ranks
from kube import Kube, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.real_model, pytest.mark.timeout(1200)]

NAME = "lasting"
PROMPT = "Once upon a time, in a village by the sea,"
TOKENS = 300
VICTIM = f"{NAME}-0-worker-1"


@pytest.fixture(scope="module")
def lasting(kube: Kube, images: dict[str, str]) -> Iterator[str]:
    kube.apply(infd(NAME, images["model"], parallelism={"pipeline": 2}, worker={"ranksPerPod": 1}))
    kube.wait_ready(NAME, 600)
    yield NAME
    kube.kubectl("delete", "infd", NAME, "--timeout=60s")


def stream(kube: Kube) -> ClusterStream:
    return ClusterStream(kube, NAME, {"model": NAME, "prompt": PROMPT, "max_tokens": TOKENS})


@pytest.fixture(scope="module")
def golden(kube: Kube, lasting: str) -> str:
    return stream(kube).finish()


def delete_worker(kube: Kube) -> None:
    kube.kubectl("delete", "pod", VICTIM, "--wait=false")


def kill_rank(kube: Kube) -> None:
    signal_ranks(kube, VICTIM, signal.SIGKILL)


def stop_rank(kube: Kube) -> None:
    signal_ranks(kube, VICTIM, signal.SIGSTOP)


def exhaust_rank(kube: Kube) -> None:
    exhaust_memory(kube, VICTIM)


def delete_service(kube: Kube) -> None:
    kube.kubectl("delete", "service", NAME)


def restart_operator(_: Kube) -> None:
    Kube(SYSTEM).kubectl("delete", "pods", "-l", "app.kubernetes.io/component=operator")


def told(kube: Kube) -> frozenset[str]:
    """What Degraded says: of a loss while it lasts, and of the last one afterwards."""
    condition = kube.condition(NAME, "Degraded")
    return frozenset({f"{condition['reason']}: {condition['message']}"})


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (delete_worker, "PodLost"),
        (kill_rank, "RankLost"),
        (stop_rank, "EngineStalled"),
        (exhaust_rank, "OutOfMemory"),
        (delete_service, ""),
        (restart_operator, ""),
    ],
)
def test_a_stream_goes_on(
    kube: Kube, golden: str, fault: Callable[[Kube], None], cause: str
) -> None:
    """``cause``: the reason that is told of an interruption."""
    engines = kube.uids(NAME, "engine")
    running = stream(kube)
    running.wait_pieces(20)
    before = told(kube)
    moment = time.monotonic()
    fault(kube)
    if cause:
        words = wait_for(
            lambda: told(kube) - before, 60, lambda: f"nothing new is told: {sorted(before)}"
        )
        assert any(cause in each for each in words), words
        print(f"{fault.__name__}: told as {words}")
    assert running.finish() == golden
    print(f"{fault.__name__}: longest pause {running.longest_pause(moment):.1f} s")
    kube.wait_ready(NAME, 300)
    assert kube.uids(NAME, "engine") == engines
    wait_for(lambda: kube.exists("service", NAME), 30, lambda: "the Service does not come back")


def test_the_engine_pod_comes_back_and_takes_its_workers(kube: Kube, golden: str) -> None:
    workers = kube.uids(NAME, "worker")
    running = stream(kube)
    running.wait_pieces(20)
    kube.kubectl("delete", "pod", f"{NAME}-0-engine", "--grace-period=0", "--force")
    started = time.monotonic()
    with pytest.raises(AssertionError):
        running.finish()
    wait_for(
        lambda: kube.condition(NAME)["status"] != "True",
        60,
        lambda: "the loss is not told",
    )
    kube.wait_ready(NAME, 300)
    print(f"engine pod lost: Ready again after {time.monotonic() - started:.1f} s")
    assert kube.uids(NAME, "worker") == workers
    assert stream(kube).finish() == golden
