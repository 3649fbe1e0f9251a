"""The loop of the work queue, in virtual time."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

import pytest

from torpor_operator.workqueue import Key, Outcome, Work, WorkQueue
from virtual_time import loop_time, run_virtual

A = Key("models", "a")
B = Key("models", "b")


def work_for(seconds: float, work: Work, *keys: Key) -> int:
    """Returns the keys that are left at the end."""

    async def run() -> int:
        queue = WorkQueue(work, clock=loop_time, resync=300.0)
        for key in keys:
            queue.add(key)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await queue.run()
        return queue.depth()

    return run_virtual(run())


def test_a_key_is_worked_on_by_one_task_while_others_go_on() -> None:
    running: set[Key] = set()
    together: set[frozenset[Key]] = set()

    async def work(key: Key) -> Outcome:
        assert key not in running
        running.add(key)
        together.add(frozenset(running))
        await asyncio.sleep(3.0)
        running.discard(key)
        return Outcome(0.0)

    work_for(60.0, work, A, B)
    assert frozenset({A, B}) in together


def test_a_key_comes_back_when_it_said_and_at_the_resync_when_it_said_nothing() -> None:
    times: dict[Key, list[float]] = {A: [], B: []}

    async def work(key: Key) -> Outcome:
        times[key].append(loop_time())
        return Outcome(10.0 if key == A else None)

    work_for(1000.0, work, A, B)
    steps = [later - earlier for earlier, later in zip(times[A], times[A][1:], strict=False)]
    assert len(steps) > 90
    assert steps == pytest.approx([10.0] * len(steps))
    resyncs = [later - earlier for earlier, later in zip(times[B], times[B][1:], strict=False)]
    assert len(resyncs) >= 2
    assert all(240.0 <= each <= 360.0 for each in resyncs)


def test_a_failure_is_logged_and_tried_again_and_hurts_nobody_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done: list[Key] = []

    async def work(key: Key) -> Outcome:
        done.append(key)
        if key == A and done.count(A) < 4:
            raise RuntimeError("the moon is full")
        return Outcome()

    with caplog.at_level(logging.WARNING):
        work_for(60.0, work, A, B)
    assert done.count(A) == 4
    assert done.count(B) == 1
    assert "the moon is full" in caplog.text


def test_what_is_gone_does_not_come_back() -> None:
    seen: list[Key] = []

    async def work(key: Key) -> Outcome:
        seen.append(key)
        return Outcome(gone=True)

    assert work_for(2000.0, work, A) == 0
    assert seen == [A]


def test_ending_the_queue_ends_its_work() -> None:
    ended: list[Key] = []

    async def work(key: Key) -> Outcome:
        try:
            await asyncio.sleep(1e6)
        finally:
            ended.append(key)
        return Outcome()

    work_for(5.0, work, A, B)
    assert sorted(ended) == [A, B]


def test_work_that_hangs_shows_in_the_age() -> None:
    async def work(key: Key) -> Outcome:
        await asyncio.sleep(1e6)
        return Outcome()

    async def run() -> float:
        queue = WorkQueue(work, clock=loop_time, resync=300.0)
        queue.add(A)
        task = asyncio.create_task(queue.run())
        await asyncio.sleep(400.0)
        age = queue.oldest()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return age

    assert run_virtual(run()) == pytest.approx(400.0)
