"""A Prometheus histogram that takes many equal observations at once.

A step of the engine gives hundreds of requests a token after the same time. Observing each by
itself would cost more than the token; here they are one addition.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class BatchHistogram(Collector):
    """``bounds``: upper bounds of the buckets, ascending, without infinity. Used by one thread.

    ``labels`` are fixed names and values; ``extra`` names the one label that varies, if any."""

    def __init__(
        self, name: str, text: str, bounds: Sequence[float], labels: dict[str, str], extra: str = ""
    ) -> None:
        self._name = name
        self._text = text
        self._bounds = list(bounds)
        self._labels = labels
        self._extra = [extra] if extra else []
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}
        if not extra:
            self._series("")

    def observe(self, value: float, count: int = 1, extra: str = "") -> None:
        """``count`` observations of ``value``."""
        counts = self._series(extra)
        counts[bisect_left(self._bounds, value)] += count
        self._sums[extra] += value * count

    def describe(self) -> Iterator[HistogramMetricFamily]:
        yield self._family()

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = self._family()
        for extra, counts in self._counts.items():
            values = [*self._labels.values(), *([extra] if self._extra else [])]
            family.add_metric(values, self._cumulative(counts), self._sums[extra])
        yield family

    def _family(self) -> HistogramMetricFamily:
        names = [*self._labels, *self._extra]
        return HistogramMetricFamily(self._name, self._text, labels=names)

    def _series(self, extra: str) -> list[int]:
        counts = self._counts.get(extra)
        if counts is None:
            counts = self._counts[extra] = [0] * (len(self._bounds) + 1)
            self._sums[extra] = 0.0
        return counts

    def _cumulative(self, counts: list[int]) -> list[tuple[str, float]]:
        total = 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip([*self._bounds, float("inf")], counts, strict=True):
            total += count
            buckets.append((str(floatToGoString(bound)), total))  # type: ignore[no-untyped-call]
        return buckets
