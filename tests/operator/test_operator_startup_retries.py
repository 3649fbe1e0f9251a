"""At its start the operator waits for an API server that is not ready, and for no other answer."""

from __future__ import annotations

import asyncio

import pytest

from torpor_operator.cluster_api import ClusterError, NotFound
from torpor_operator.startup_retries import LONGEST, patiently

INITIALIZING = ClusterError(429, "TooManyRequests", "storage is (re)initializing")
UNREACHABLE = ClusterError(0, "", "the API server: connection refused")
UNKNOWN = NotFound(404, "NotFound", "no such kind")
FORBIDDEN = ClusterError(403, "Forbidden", "may not list")


def attempts(*answers: ClusterError | None) -> tuple[int, float]:
    """How often it asked for an answer that is None, and how long it took; the last one stays."""
    time, asked = 0.0, 0

    async def work() -> None:
        nonlocal asked
        asked += 1
        answer = answers[min(asked, len(answers)) - 1]
        if answer is not None:
            raise answer

    async def sleep(seconds: float) -> None:
        nonlocal time
        time += seconds

    asyncio.run(patiently(work, clock=lambda: time, sleep=sleep))
    return asked, time


@pytest.mark.parametrize("error", [INITIALIZING, UNREACHABLE, UNKNOWN])
def test_what_passes_is_waited_for(error: ClusterError) -> None:
    assert attempts(error, error, None) == (3, 2.0)


def test_a_refusal_is_said_at_once() -> None:
    with pytest.raises(ClusterError, match="may not list"):
        attempts(FORBIDDEN, None)


def test_what_stays_is_raised_in_the_end() -> None:
    times: list[float] = []

    async def work() -> None:
        raise UNKNOWN

    async def sleep(seconds: float) -> None:
        times.append(seconds)

    with pytest.raises(NotFound):
        asyncio.run(patiently(work, clock=lambda: sum(times), sleep=sleep))
    assert LONGEST <= sum(times) <= LONGEST + 1.0
