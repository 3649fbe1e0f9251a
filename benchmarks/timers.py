"""Timers around functions of the product, put there from outside and taken away by no one: a
process that has them does nothing else than to be measured.

Times are exclusive: what a timed function spends in another timed function counts there. Steps are
closed by whoever knows where one ends, and carry how many rows they had.
"""

from __future__ import annotations

import functools
import importlib
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

PhaseOf = Callable[..., str]  # from the call's arguments to the phase's name


class Timers:
    """One per process; nothing here is for threads."""

    def __init__(self) -> None:
        self._inner = [0.0]  # per open call, what its timed callees took
        self._step: dict[str, float] = defaultdict(float)
        self.steps: list[tuple[int, dict[str, float]]] = []

    def wrap(self, place: str, phase: str | PhaseOf) -> None:
        """``place``: "module:name" or "module:Class.name". Raises AttributeError if it is gone."""
        module, _, path = place.partition(":")
        owner: Any = importlib.import_module(module)
        *outer, name = path.split(".")
        for part in outer:
            owner = getattr(owner, part)
        setattr(owner, name, self.timed(getattr(owner, name), phase))

    def timed(self, function: Callable[..., Any], phase: str | PhaseOf) -> Callable[..., Any]:
        inner, clock = self._inner, time.perf_counter
        fixed = phase if isinstance(phase, str) else None

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            inner.append(0.0)
            started = clock()
            try:
                return function(*args, **kwargs)
            finally:
                spent = clock() - started
                own = spent - inner.pop()
                inner[-1] += spent
                self._step[fixed or phase(*args)] += own  # type: ignore[operator]

        return call

    def end_step(self, rows: int) -> None:
        """What was timed since the last call is a step of ``rows``, or nothing with none."""
        if rows:
            self.steps.append((rows, dict(self._step)))
        self._step.clear()

    def clear(self) -> None:
        self._step.clear()
        self.steps.clear()


def medians(steps: Iterable[tuple[int, dict[str, float]]], rows: int) -> dict[str, float]:
    """Milliseconds by phase over the steps of ``rows``, less the first of them: it has the last
    part of the prompts. ``total`` is the median of the steps' sums."""
    full = [step for count, step in steps if count == rows][1:]
    if not full:
        return {}
    names = sorted({name for step in full for name in step})
    found = {name: 1000 * statistics.median(step.get(name, 0.0) for step in full) for name in names}
    return found | {"total": 1000 * statistics.median(sum(step.values()) for step in full)}
