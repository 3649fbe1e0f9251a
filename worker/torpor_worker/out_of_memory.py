"""Tells the kernel's kill for want of memory from a stranger's SIGKILL: both look alike from here.

The control group counts its kills. Where the kernel kills a whole container at once, the supervisor
dies with its ranks, and it is the pod's status that tells.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

from torpor_worker.control_groups import ROOT, control_groups, read_value

# The engine looks for these words at the end of a rank's log.
EXPLANATION = "The kernel killed this process: the pod's control group is out of memory."


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
    """``read`` gives the counter."""

    def __init__(self, read: Callable[[], int] = oom_kills) -> None:
        self._read = read
        self._known = read()

    def explained(self, status: int, log_tail: str) -> str:
        """The tail of a dead process's log, with the explanation behind it if one is due."""
        if status != -signal.SIGKILL:
            return log_tail
        count = self._read()
        grew, self._known = count > self._known, count
        return f"{log_tail}\n{EXPLANATION}" if grew else log_tail
