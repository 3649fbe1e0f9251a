"""uvicorn's HTTP protocol with the bounds it lacks: heads that are too long or too slow, bodies
that trickle, clients that never read, and too many connections.

An application sees a request only when its head is complete; what happens before, and to a
connection whose answer is done, can be bounded only here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from torpor_engine.api.direct_write import EXTENSION, Connection
from torpor_engine.api.errors import ApiError, invalid, unavailable
from torpor_protocol.limits import (
    MAX_DISCARDED_BYTES,
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    MAX_IDLE_BYTES,
)

_REASONS = {400: b"Bad Request", 431: b"Request Header Fields Too Large", 503: b"Unavailable"}


class BoundedProtocol(HttpToolsProtocol):
    """``receive_seconds`` for a whole request to arrive, ``stall_seconds`` for an answer to be
    taken, ``max_connections`` at a time. ``keeps``: whether a connection outlives its answer."""

    receive_seconds = 30.0
    stall_seconds = 60.0
    max_connections = 4096
    keeps: Callable[[], bool] = staticmethod(lambda: True)

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._receive_timer: asyncio.TimerHandle | None = None
        self._close_timer: asyncio.TimerHandle | None = None
        self._refused = False
        self._in_head = True
        self._head_bytes = 0
        self._idle_bytes = 0
        self._discarded = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            self._refuse(unavailable("too_many_connections", "Too many connections.", 1))
        else:
            self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._receive_timer, self._close_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self._receive_timer is None:
            self._await_request()
        if self._in_head:
            self._head_bytes += len(data)
        else:
            self._idle_bytes += len(data)
        super().data_received(data)
        if self._refused or self.transport.is_closing():
            return
        if self._in_head and self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(_head_too_large())
        elif self._idle_bytes > MAX_IDLE_BYTES or self._discarded > MAX_DISCARDED_BYTES:
            self._cut()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= MAX_HEADERS:
            self._refuse(_head_too_large())
        else:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_bytes = self._idle_bytes = self._discarded = 0
        if not self._refused:
            super().on_headers_complete()
            self.cycle.keep_alive = self.cycle.keep_alive and self.keeps()
            # The application's task has not begun: it finds this in its scope.
            connection = Connection(self.cycle, self._cut)
            self.scope["extensions"] = {EXTENSION: {"connection": connection}}

    def on_body(self, body: bytes) -> None:
        self._idle_bytes = 0
        if self._refused:
            return
        if self.cycle.response_complete:
            self._discarded += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._receive_timer is not None:
            self._receive_timer.cancel()
            self._receive_timer = None
        if not self._refused:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._close_timer = self.loop.call_later(self.stall_seconds, self._cut)

    def timeout_keep_alive_handler(self) -> None:
        """An idle connection with bytes left is one whose client does not read."""
        if self.transport.get_write_buffer_size():
            self._cut()
        else:
            super().timeout_keep_alive_handler()

    def send_400_response(self, msg: str) -> None:
        if not self._refused:
            self._refuse(invalid("This is not a valid HTTP request.", code="invalid_http"))

    def _await_request(self) -> None:
        self._receive_timer = self.loop.call_later(self.receive_seconds, self._too_slow)

    def _too_slow(self) -> None:
        """A request that waits for the answer before it is not slow: look again later."""
        working = self.cycle is not None and not self.cycle.response_complete
        if working and (self.pipeline or not self.cycle.more_body):
            self._await_request()
        else:
            self._cut()

    def _refuse(self, error: ApiError) -> None:
        """Answer without the application, and close."""
        self._refused = True
        body = error.body()
        lines = [
            b"HTTP/1.1 %d %s" % (error.status, _REASONS[error.status]),
            b"content-type: application/json",
            b"content-length: %d" % len(body),
            b"connection: close",
            *(f"{name.lower()}: {value}".encode() for name, value in error.headers.items()),
        ]
        self.transport.write(b"\r\n".join(lines) + b"\r\n\r\n" + body)
        self.transport.close()
        self._close_timer = self.loop.call_later(self.stall_seconds, self._cut)

    def _cut(self) -> None:
        self.transport.abort()


def _head_too_large() -> ApiError:
    message = f"The request's head has more than {MAX_HEAD_BYTES} bytes or {MAX_HEADERS} headers."
    return ApiError(431, "request_head_too_large", message)
