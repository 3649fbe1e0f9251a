"""How much a measurement was disturbed: other programs' share of the cores, and the host's."""

from __future__ import annotations

import os
import time
from typing import Any

import psutil
from benchmarks.processes import Tree


class Disturbance:
    """Use as a context around a measurement; ``other`` and ``steal`` are cores, on average.

    ``trees``: whose processor time is the measurement's own, beside this process and its
    children that have ended."""

    def __init__(self, trees: list[Tree]) -> None:
        self._trees = trees
        self.other = 0.0
        self.steal = 0.0

    def __enter__(self) -> Disturbance:
        self._at = time.perf_counter()
        self._own = self._own_seconds()
        self._all, self._stolen = _machine_seconds()
        return self

    def __exit__(self, *_: Any) -> None:
        seconds = time.perf_counter() - self._at
        busy, stolen = _machine_seconds()
        own = self._own_seconds() - self._own
        self.other = round(max(0.0, busy - self._all - own) / seconds, 3)
        self.steal = round((stolen - self._stolen) / seconds, 3)

    def _own_seconds(self) -> float:
        times = os.times()
        mine = times.user + times.system + times.children_user + times.children_system
        return mine + sum(tree.cpu_seconds() for tree in self._trees)


def _machine_seconds() -> tuple[float, float]:
    times = psutil.cpu_times()
    return times.user + times.nice + times.system + times.irq + times.softirq, times.steal
