"""Tells the engine how far loading has come, at a rate that a progress bar can use."""

from __future__ import annotations

import time
from collections.abc import Callable

from torpor_protocol.rpc import Progress

INTERVAL = 0.1


class ProgressReporter:
    """Called by the worker from the thread that runs its methods, as often as it likes."""

    def __init__(
        self,
        send: Callable[[Progress], None],
        rank: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._send = send
        self._rank = rank
        self._clock = clock
        self._due = clock()

    def __call__(
        self, tensors_done: int, tensors_total: int, bytes_done: int, bytes_total: int
    ) -> None:
        """Sent when the last report is INTERVAL seconds old, and always when all is done."""
        now = self._clock()
        if now < self._due and tensors_done < tensors_total:
            return
        self._due = now + INTERVAL
        self._send(Progress(self._rank, tensors_done, tensors_total, bytes_done, bytes_total))
