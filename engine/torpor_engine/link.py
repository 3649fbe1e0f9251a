"""The pipe between API process and core process: a socket pair with length-prefixed frames.

A socket pair has no name that a stranger could find and no file that could be left behind, and its
end of file tells either side that the other is gone.
"""

from __future__ import annotations

import socket
import struct
from collections import deque

from torpor_protocol.errors import EngineDead
from torpor_protocol.limits import MAX_MESSAGE_BYTES

_LENGTH = struct.Struct("<I")
_CHUNK = 2**18


class FrameBuffer:
    """Cuts a byte stream into frames."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes, give the frames that are complete.

        Raises EngineDead for a length beyond the limit: the stream is out of step."""
        self._data += data
        frames = []
        start = 0
        while len(self._data) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._data, start)
            if length > MAX_MESSAGE_BYTES:
                raise EngineDead(f"A message between processes claims {length} bytes.")
            end = start + _LENGTH.size + length
            if len(self._data) < end:
                break
            frames.append(bytes(self._data[start + _LENGTH.size : end]))
            start = end
        del self._data[:start]
        return frames


def frame(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


class FrameSocket:
    """The core's side: never blocks on sending, waits only in its own poll."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._buffer = FrameBuffer()
        self._unsent: deque[memoryview] = deque()
        self.closed = False

    def fileno(self) -> int:
        return self._connection.fileno()

    @property
    def backlog(self) -> bool:
        """Whether something still waits to be sent."""
        return bool(self._unsent)

    def receive(self) -> list[bytes]:
        """Every complete frame that is there; sets ``closed`` at end of file."""
        frames: list[bytes] = []
        while not self.closed:
            try:
                data = self._connection.recv(_CHUNK)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.closed = True
                break
            frames += self._buffer.feed(data)
            if len(data) < _CHUNK:
                break
        return frames

    def send(self, body: bytes) -> None:
        self._unsent.append(memoryview(frame(body)))
        self.flush()

    def flush(self) -> None:
        """Send what the socket takes now."""
        while self._unsent and not self.closed:
            try:
                sent = self._connection.send(self._unsent[0])
            except BlockingIOError:
                return
            except OSError:
                self.closed = True
                return
            if sent == len(self._unsent[0]):
                self._unsent.popleft()
            else:
                self._unsent[0] = self._unsent[0][sent:]
