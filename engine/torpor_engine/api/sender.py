"""One open stream: its bytes to the client, and whether the client takes them."""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import Scope, Send

from torpor_engine.api.chunks import KEEP_ALIVE
from torpor_engine.api.generation import Generation

# Set by our HTTP protocol: cuts the connection without waiting for the client to read.
CUT_EXTENSION = "torpor.cut"
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


def _leave() -> None:
    """Of a server that cannot cut a connection: the client keeps it."""


class StreamSender:
    """``sending_since``: when the send that still waits for the client began, else 0.

    The status goes out with the first bytes, so that an error before them has its own status."""

    def __init__(
        self, generation: Generation, scope: Scope, send: Send, clock: Callable[[], float]
    ) -> None:
        self.generation = generation
        self._send = send
        self._clock = clock
        self._cut = scope.get("extensions", {}).get(CUT_EXTENSION, {}).get("now", _leave)
        self._keep_alive_due = False
        self.started = False
        self.sending_since = 0.0
        self.last_sent = clock()

    async def send(self, body: bytes, *, last: bool = False) -> None:
        self.sending_since = self._clock()
        if not self.started:
            self.started = True
            start = {"type": "http.response.start", "status": 200, "headers": list(_HEADERS)}
            await self._send(start)
        await self._send({"type": "http.response.body", "body": body, "more_body": not last})
        self.last_sent = self._clock()
        self.sending_since = 0.0
        self._keep_alive_due = False

    def keep_alive(self) -> None:
        """Let the stream's own task send a comment, so that proxies see life."""
        self._keep_alive_due = True
        self.generation.news.set()

    def due(self) -> bytes:
        return KEEP_ALIVE if self._keep_alive_due else b""

    def cut(self) -> None:
        """The client does not read: end the connection, and with it the wait in `send`."""
        self._cut()
