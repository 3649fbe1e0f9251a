"""How loading is shown: a bar on a terminal, a log line now and then elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from torpor_protocol.requests import LoadProgress

log = logging.getLogger(__name__)

LOG_SECONDS = 2.0


class LoadDisplay(Protocol):
    def show(self, progress: LoadProgress) -> None: ...

    def close(self) -> None: ...


class LogDisplay:
    """Lines such as ``Loading 120/272 tensors, 201 of 513 MiB, 3 s left``."""

    def __init__(self) -> None:
        self._last = 0.0
        self._ended = False

    def show(self, progress: LoadProgress) -> None:
        now = time.monotonic()
        ended = progress.tensors_done >= progress.tensors_total
        if self._ended or (now - self._last < LOG_SECONDS and not ended):
            return
        self._last, self._ended = now, ended
        log.info("%s", describe(progress))

    def close(self) -> None:
        return None


class BarDisplay:
    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("Loading {task.fields[tensors]} tensors"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task("load", tensors="")
        self._progress.start()

    def show(self, progress: LoadProgress) -> None:
        self._progress.update(
            self._task,
            completed=progress.bytes_done,
            total=progress.bytes_total,
            tensors=f"{progress.tensors_done}/{progress.tensors_total}",
        )

    def close(self) -> None:
        self._progress.stop()


def describe(progress: LoadProgress) -> str:
    """One line: tensors n/m, bytes, and the time that is left at the rate so far."""
    line = (
        f"Loading {progress.tensors_done}/{progress.tensors_total} tensors, "
        f"{progress.bytes_done / 2**20:.0f} of {progress.bytes_total / 2**20:.0f} MiB"
    )
    left = progress.bytes_total - progress.bytes_done
    if left and progress.bytes_done and progress.seconds > 0:
        line += f", {left * progress.seconds / progress.bytes_done:.0f} s left"
    return line


def load_display() -> LoadDisplay:
    """The display that suits standard error."""
    return BarDisplay() if sys.stderr.isatty() else LogDisplay()
