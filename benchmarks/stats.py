"""Medians, spreads and ratios: everything that stands in a table goes through here.

The machine's speed drifts within minutes, so engines are compared inside one round, where they run
next to each other, and the ratio of a round is taken before any median.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """Median, least and greatest of ``count`` values."""

    median: float
    low: float
    high: float
    count: int

    def text(self, digits: int = 1) -> str:
        if self.count == 1:
            return f"{self.median:.{digits}f}"
        return f"{self.median:.{digits}f} ({self.low:.{digits}f}–{self.high:.{digits}f})"


def spread(values: Sequence[float]) -> Spread | None:
    """None of no values."""
    if not values:
        return None
    return Spread(statistics.median(values), min(values), max(values), len(values))


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Linear between the neighbours; None of no values. ``percent``: 0..100."""
    if not values:
        return None
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def ratios(ours: Mapping[int, float], peers: Mapping[int, float]) -> list[float]:
    """ours / peer for each round that both have."""
    return [ours[number] / peers[number] for number in sorted(ours) if peers.get(number)]


def median_phases(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """By phase the median over the rounds; a phase that a round lacks took no time in it."""
    names = sorted({name for phases in rounds for name in phases})
    return {name: statistics.median(each.get(name, 0.0) for each in rounds) for name in names}
