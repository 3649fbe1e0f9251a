"""Exclusive times and steps, with a clock that the test turns."""

from __future__ import annotations

import types
from typing import Any

import pytest
from benchmarks.timers import Timers, medians


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    turned = Clock()
    monkeypatch.setattr("benchmarks.timers.time", turned)
    return turned


def test_what_an_inner_phase_takes_counts_there_only(clock: Clock) -> None:
    timers = Timers()

    def inner(seconds: float) -> float:
        clock.now += seconds
        return seconds

    timed_inner = timers.timed(inner, lambda seconds: "long" if seconds > 1 else "short")

    def outer() -> float:
        clock.now += 1.0
        return timed_inner(2.0) + timed_inner(0.5)  # type: ignore[no-any-return]

    assert timers.timed(outer, "outer")() == 2.5
    timers.end_step(3)
    assert timers.steps == [(3, {"outer": 1.0, "long": 2.0, "short": 0.5})]


def test_a_function_that_raises_is_timed_and_raises(clock: Clock) -> None:
    timers = Timers()

    def fails() -> None:
        clock.now += 1.0
        raise KeyError("x")

    with pytest.raises(KeyError):
        timers.timed(fails, "fails")()
    timers.end_step(0)
    assert timers.steps == []
    timers.timed(lambda: None, "quick")()
    timers.end_step(1)
    assert timers.steps == [(1, {"quick": 0.0})]


def test_a_name_that_is_gone_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = types.ModuleType("torpor_bench_example")
    module.Thing = type("Thing", (), {"work": lambda self: 5})
    monkeypatch.setitem(__import__("sys").modules, "torpor_bench_example", module)
    timers = Timers()
    timers.wrap("torpor_bench_example:Thing.work", "work")
    assert module.Thing().work() == 5
    timers.end_step(1)
    assert list(timers.steps[0][1]) == ["work"]
    with pytest.raises(AttributeError):
        timers.wrap("torpor_bench_example:Thing.gone", "work")


def test_medians_are_over_full_steps_after_the_first() -> None:
    steps = [
        (1, {"a": 9.0}),
        (2, {"a": 9.0}),
        (2, {"a": 0.001, "b": 0.004}),
        (2, {"a": 0.003}),
        (2, {"a": 0.002, "b": 0.002}),
    ]
    found = medians(steps, 2)
    assert found == pytest.approx({"a": 2.0, "b": 2.0, "total": 4.0})
    assert medians(steps, 7) == {}
