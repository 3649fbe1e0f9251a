"""What a rank writes to stdout and stderr: passed on line by line, its last part remembered.

A pipe that the fork server drains instead of a file: nothing to rotate, nothing to remove, and the
pod's own log shows every rank.
"""

from __future__ import annotations

import os
import select

from torpor_protocol.limits import MAX_LOG_TAIL

_CHUNK = 64 * 2**10
# Up to PIPE_BUF a write to a pipe that poll() calls writable neither blocks nor tears.
_WRITE = select.PIPE_BUF
_LAST_READS = 64


class RankLog:
    """``fd``: the reading end of one rank's output. ``out``: where its lines go."""

    def __init__(self, rank: int, fd: int, out: int = 2) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.ended = False
        self._out = out
        self._prefix = f"[rank {rank}] ".encode()
        self._tail = b""
        self._line = b""

    @property
    def tail(self) -> str:
        return self._tail.decode(errors="replace")

    def read(self) -> bool:
        """Take what is there, at most one chunk; False when there was nothing."""
        try:
            chunk = os.read(self.fd, _CHUNK)
        except BlockingIOError:
            return False
        self.ended = not chunk
        self._tail = (self._tail + chunk)[-MAX_LOG_TAIL:]
        self._pass_on(chunk)
        return bool(chunk)

    def close(self) -> None:
        """Take what a dead rank left, then close. Bounded: a grandchild may still be writing."""
        for _ in range(_LAST_READS):
            if not self.read():
                break
        if self._line:
            self._pass_on(b"\n")
        os.close(self.fd)

    def _pass_on(self, chunk: bytes) -> None:
        *lines, self._line = (self._line + chunk).split(b"\n")
        room = _WRITE - len(self._prefix) - 1
        if len(self._line) > room:
            lines.append(self._line)
            self._line = b""
        for line in lines:
            for start in range(0, max(1, len(line)), room):
                _write_if_ready(self._out, self._prefix + line[start : start + room] + b"\n")


def _write_if_ready(fd: int, data: bytes) -> None:
    """Drop the line when nobody takes it: a stopped terminal must not stop the fork server."""
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    if any(event & select.POLLOUT for _, event in poll.poll(0)):
        try:
            os.write(fd, data)
        except (BlockingIOError, BrokenPipeError):
            return
