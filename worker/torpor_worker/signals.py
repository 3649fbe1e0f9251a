"""Signals as something a poll can wait for."""

from __future__ import annotations

import os
import signal
from types import FrameType

_CHUNK = 512


def _noted(_number: int, _frame: FrameType | None) -> None:
    """The signal's number is in the pipe; the loop acts on it."""


class SignalPipe:
    """SIGTERM and SIGCHLD arrive on a descriptor. SIGINT is ignored: Ctrl-C reaches the whole
    process group, and it is the engine that drains and then ends its supervisor."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        for fd in (self._reading, self._writing):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, _noted)
        signal.signal(signal.SIGCHLD, _noted)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def fileno(self) -> int:
        return self._reading

    def read(self) -> set[int]:
        """The numbers of the signals that came."""
        return set(os.read(self._reading, _CHUNK))

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        os.close(self._reading)
        os.close(self._writing)
