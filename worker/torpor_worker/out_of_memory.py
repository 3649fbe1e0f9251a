"""Tells the kernel's kill for want of memory from a stranger's SIGKILL: both look alike from here.

The control group counts its kills. Where the kernel kills a whole container at once, the supervisor
dies with its ranks, and it is the pod's status that tells.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable
from pathlib import Path

from torpor_worker.control_groups import ROOT, control_groups, read_value

# The engine looks for these words at the end of a rank's log.
EXPLANATION = "The kernel killed this process: the pod's control group is out of memory."

# From the kernel's kill until all that it took along has been reaped.
SAME_KILL_SECONDS = 3.0


def oom_kills(root: Path = ROOT) -> int:
    """Kills for want of memory that this process's control group has counted, 0 where it has no
    counter. Version 1 of old kernels counts only how often the limit was hit."""
    try:
        groups = list(control_groups("memory", root))
    except OSError:
        return 0
    for folder, version in groups:
        count = _kills_of(folder, version)
        if count is not None:
            return count
    return 0


def _kills_of(folder: Path, version: int) -> int | None:
    if version == 2:
        return read_value(folder / "memory.events", "oom_kill")
    kills = read_value(folder / "memory.oom_control", "oom_kill")
    if kills is not None:
        return kills
    try:
        return int((folder / "memory.failcnt").read_text())
    except (OSError, ValueError):
        return None


class OomWatch:
    """``read`` gives the counter, ``clock`` seconds. ``look`` is to be called every second or so:
    a kill long ago, of whatever else is in the pod, does not explain a death of now."""

    def __init__(
        self, read: Callable[[], int] = oom_kills, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read = read
        self._clock = clock
        self._known = read()
        self._grew_at = -math.inf

    def look(self) -> None:
        count = self._read()
        if count > self._known:
            self._grew_at = self._clock()
        self._known = count

    def explained(self, status: int, log_tail: str) -> str:
        """The tail of a dead process's log, with the explanation behind it if one is due. A kill
        explains several deaths: the ranks of a fork server die with it."""
        if status != -signal.SIGKILL:
            return log_tail
        self.look()
        recent = self._clock() - self._grew_at <= SAME_KILL_SECONDS
        return f"{log_tail}\n{EXPLANATION}" if recent else log_tail
