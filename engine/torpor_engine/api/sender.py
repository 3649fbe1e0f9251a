"""One open stream: its bytes to the client, and whether the client takes them."""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import Scope, Send

from torpor_engine.api.chunks import KEEP_ALIVE, ChunkWriter
from torpor_engine.api.direct_write import connection_of
from torpor_engine.api.generation import Generation

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class StreamSender:
    """``sending_since``: when the send that still waits for the client began, else 0.

    The first bytes, the last, and those for a client that is behind go through `send`, in the
    stream's own task; the others are written where they are made (`notify`). The status goes out
    with the first bytes, so that an error before them has its own status."""

    def __init__(
        self, generation: Generation, scope: Scope, send: Send, clock: Callable[[], float]
    ) -> None:
        self.generation = generation
        self.writer = ChunkWriter(generation)
        self._send = send
        self._clock = clock
        self._connection = connection_of(scope)
        self._keep_alive_due = False
        self.started = False
        self.sending_since = 0.0
        self.last_sent = clock()
        generation.notify = self.notify

    def notify(self) -> None:
        """There is news: write it at once in the plain case, else leave it to the task."""
        generation = self.generation
        if not self.started or self.sending_since or generation.unfinished == 0 or generation.error:
            generation.news.set()
            return
        body = self.writer.news()
        if body:
            if self._connection.write(body):
                self.last_sent = self._clock()
            else:
                self.writer.put_back(body)
                generation.news.set()

    async def send(self, body: bytes, *, last: bool = False) -> None:
        self.sending_since = self._clock()
        if not self.started:
            start = {"type": "http.response.start", "status": 200, "headers": list(_HEADERS)}
            await self._send(start)
            self.started = True
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
        self._connection.cut()
