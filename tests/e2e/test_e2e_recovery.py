"""A stream through the Service survives every loss but that of its engine pod."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator

import pytest

from cluster_kit import SYSTEM
from cluster_stream import ClusterStream
from infd import exhaust_memory, infd, signal_ranks
from kube import Kube, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.real_model, pytest.mark.timeout(1200, func_only=True)]

NAME = "lasting"
PROMPT = "Once upon a time, in a village by the sea,"
TOKENS = 300
LEFT = 150  # tokens of a stream that are enough to see a fault in it, on a fast cluster too
VICTIM = f"{NAME}-0-worker-1"


@pytest.fixture(scope="module")
def lasting(kube: Kube, images: dict[str, str]) -> Iterator[str]:
    kube.apply(infd(NAME, images["model"], parallelism={"pipeline": 2}, worker={"ranksPerPod": 1}))
    kube.wait_ready(NAME, 600)
    yield NAME
    kube.kubectl("delete", "infd", NAME, "--timeout=60s")


def stream(kube: Kube, tokens: int = TOKENS) -> ClusterStream:
    return ClusterStream(kube, NAME, {"model": NAME, "prompt": PROMPT, "max_tokens": tokens})


@pytest.fixture(scope="module")
def golden(kube: Kube, lasting: str) -> str:
    return stream(kube).finish()


def delete_worker(kube: Kube) -> None:
    kube.kubectl("delete", "pod", VICTIM, "--wait=false")


def kill_rank(kube: Kube) -> None:
    assert signal_ranks(kube, VICTIM, signal.SIGKILL)


def stop_rank(kube: Kube) -> None:
    assert signal_ranks(kube, VICTIM, signal.SIGSTOP)


def exhaust_rank(kube: Kube) -> None:
    exhaust_memory(kube, VICTIM)


def delete_service(kube: Kube) -> None:
    kube.kubectl("delete", "service", NAME)


def restart_operator(_: Kube) -> None:
    Kube(SYSTEM).kubectl("delete", "pods", "-l", "app.kubernetes.io/component=operator")


# What happens, and the reason that is told of it if it interrupts.
FAULTS: tuple[tuple[Callable[[Kube], None], str], ...] = (
    (delete_service, ""),
    (delete_worker, "PodLost"),
    (kill_rank, "RankLost"),
    (stop_rank, "EngineStalled"),
    (restart_operator, ""),
    (exhaust_rank, "OutOfMemory"),
)


def test_a_stream_outlives_every_fault(kube: Kube, golden: str) -> None:
    check_faults(kube, golden, *FAULTS)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault[0].__name__)
def test_a_stream_goes_on(
    kube: Kube, golden: str, fault: tuple[Callable[[Kube], None], str]
) -> None:
    check_faults(kube, golden, fault)


def check_faults(kube: Kube, golden: str, *faults: tuple[Callable[[Kube], None], str]) -> None:
    """One fault after the other while a stream runs; the cause of each is told."""
    engines = kube.uids(NAME, "engine")
    running = stream(kube)
    for fault, cause in faults:
        if len(running.pieces) > TOKENS - LEFT:
            # What is left may have come before the fault does.
            assert running.finish() == golden
            running = stream(kube)
        running.wait_pieces(len(running.pieces) + 10)
        moment = time.monotonic()
        fault(kube)
        running.wait_pieces(len(running.pieces) + 10)
        print(f"{fault.__name__}: longest pause {running.longest_pause(moment):.1f} s")
        # Where there is one, it is another than the last: so it is told, and the fault has struck.
        check_cause(kube, cause)
    assert running.finish() == golden
    kube.wait_ready(NAME, 300)
    assert kube.uids(NAME, "engine") == engines
    wait_for(lambda: kube.exists("service", NAME), 30, lambda: "the Service does not come back")


def check_cause(kube: Kube, cause: str) -> None:
    """Degraded tells of a loss while it lasts, and of the last one afterwards."""

    def told() -> str:
        condition = kube.condition(NAME, "Degraded")
        return f"{condition['reason']}: {condition['message']}"

    wait_for(lambda: cause in told(), 30, lambda: f"{cause} is not told, but {told()}")
    print(f"told as {told()}")


def test_the_engine_pod_comes_back_and_takes_its_workers(kube: Kube, golden: str) -> None:
    workers = kube.uids(NAME, "worker")
    running = stream(kube)
    running.wait_pieces(20)
    kube.kubectl("delete", "pod", f"{NAME}-0-engine", "--grace-period=0", "--force")
    started = time.monotonic()
    wait_for(
        lambda: kube.condition(NAME)["status"] != "True",
        60,
        lambda: "the loss is not told",
    )
    with pytest.raises(AssertionError) as failure:
        running.finish(60)
    assert "hangs" not in str(failure.value)
    kube.wait_ready(NAME, 300)
    print(f"engine pod lost: Ready again after {time.monotonic() - started:.1f} s")
    assert kube.uids(NAME, "worker") == workers
    again = stream(kube, 40).finish()
    assert again and golden.startswith(again)
