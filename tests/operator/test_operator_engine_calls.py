"""Calls beside the queue: one at a time, paused after failures, given up with their pod."""

from __future__ import annotations

import asyncio

from torpor_operator.engine_calls import EngineCalls
from torpor_operator.engine_client import EngineError
from torpor_operator.model import EngineCall
from virtual_time import loop_time, run_virtual

SLEEP = EngineCall(0, "10.0.0.1", "sleep", level=1)
WAKE = EngineCall(0, "10.0.0.1", "wake")


class SlowEngine:
    """Takes a minute for everything; fails as often as ``failures`` says."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.begun: list[EngineCall] = []
        self.cancelled: list[EngineCall] = []

    async def carry_out(self, call: EngineCall, token: str) -> None:
        assert token == "sesame"
        self.begun.append(call)
        try:
            await asyncio.sleep(60.0)
        except asyncio.CancelledError:
            self.cancelled.append(call)
            raise
        if self.failures:
            self.failures -= 1
            raise EngineError("It does not want to.")


def test_one_power_call_at_a_time_per_replica() -> None:
    async def run() -> None:
        engine, told = SlowEngine(), []
        calls = EngineCalls(engine, clock=loop_time)
        other = EngineCall(1, "10.0.0.2", "wake")
        on_call = EngineCall(0, "10.0.0.1", "on_call", value=True)
        assert calls.start("uid", SLEEP, "sesame", lambda: told.append("sleep"))
        assert not calls.start("uid", SLEEP, "sesame", lambda: told.append("twice"))
        assert not calls.start("uid", WAKE, "sesame", lambda: told.append("wake"))
        assert calls.start("uid", other, "sesame", lambda: told.append("other"))
        assert calls.start("uid", on_call, "sesame", lambda: told.append("on call"))
        assert calls.start("another uid", SLEEP, "sesame", lambda: told.append("another"))
        await asyncio.sleep(61.0)
        assert sorted(told) == ["another", "on call", "other", "sleep"]
        assert calls.start("uid", WAKE, "sesame", lambda: told.append("wake"))
        await calls.stop()

    run_virtual(run())


def test_after_a_failure_the_next_attempt_waits_longer_and_longer() -> None:
    async def run() -> list[float]:
        engine = SlowEngine(failures=3)
        calls = EngineCalls(engine, clock=loop_time)
        pauses = []
        for _ in range(4):
            before = loop_time()
            while not calls.start("uid", SLEEP, "sesame", lambda: None):
                await asyncio.sleep(0.5)
            pauses.append(loop_time() - before)
            await asyncio.sleep(60.5)
        assert calls.start("uid", SLEEP, "sesame", lambda: None)
        await calls.stop()
        return pauses

    pauses = run_virtual(run())
    assert pauses[0] == 0.0
    assert pauses[1] < pauses[2] < pauses[3]


def test_a_failure_does_not_hold_up_the_opposite() -> None:
    async def run() -> None:
        calls = EngineCalls(SlowEngine(failures=1), clock=loop_time)
        off, on = (EngineCall(0, "10.0.0.1", "on_call", value=value) for value in (False, True))
        assert calls.start("uid", off, "sesame", lambda: None)
        await asyncio.sleep(60.5)
        assert not calls.start("uid", off, "sesame", lambda: None)
        assert calls.start("uid", on, "sesame", lambda: None)
        await calls.stop()

    run_virtual(run())


def test_a_call_to_a_replaced_pod_is_given_up_for_its_successor() -> None:
    async def run() -> None:
        engine = SlowEngine(failures=1)
        calls = EngineCalls(engine, clock=loop_time)
        moved = EngineCall(0, "10.0.0.9", "sleep", level=1)
        assert calls.start("uid", SLEEP, "sesame", lambda: None)
        await asyncio.sleep(1.0)
        assert calls.start("uid", moved, "sesame", lambda: None)
        await asyncio.sleep(1.0)
        assert engine.cancelled == [SLEEP]
        assert not calls.start("uid", moved, "sesame", lambda: None)
        await calls.stop()

    run_virtual(run())


def test_with_the_deployment_its_calls_and_failures_go() -> None:
    async def run() -> None:
        engine = SlowEngine(failures=1)
        calls = EngineCalls(engine, clock=loop_time)
        assert calls.start("uid", SLEEP, "sesame", lambda: None)
        await asyncio.sleep(61.0)
        assert not calls.start("uid", SLEEP, "sesame", lambda: None)
        calls.forget("uid")
        assert calls.start("uid", SLEEP, "sesame", lambda: None)
        await asyncio.sleep(1.0)
        calls.forget("uid")
        await asyncio.sleep(1.0)
        assert engine.cancelled == [SLEEP]

    run_virtual(run())
