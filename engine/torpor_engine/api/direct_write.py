"""Bytes of a running stream straight to the connection.

ASGI's `send` is a coroutine behind several others, and calling it takes a task: for a chunk per
token and stream that is most of the cost. While a client keeps up, a chunk can be written where it
is made. uvicorn has no such door, so this knows how its response cycle keeps its state; whatever is
not the plain case is left to `send`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

# In the scope's extensions, set by our HTTP protocol.
EXTENSION = "torpor.connection"


class Connection:
    """What a stream may do with its connection beside `send`."""

    def __init__(self, cycle: RequestResponseCycle, cut: Callable[[], None]) -> None:
        self._cycle = cycle
        self.cut = cut

    def write(self, body: bytes) -> bool:
        """Write a part of the body now, or say that it has to go through `send`."""
        cycle = self._cycle
        if (
            cycle.flow.write_paused
            or cycle.disconnected
            or cycle.response_complete
            or not cycle.chunked_encoding
        ):
            return False
        cycle.transport.write(b"%x\r\n%b\r\n" % (len(body), body))
        return True


class NoConnection:
    """Of a server that is not ours: everything goes through `send`, nothing can be cut."""

    def cut(self) -> None:
        return None

    def write(self, body: bytes) -> bool:
        return False


def connection_of(scope: Scope) -> Connection | NoConnection:
    extensions: dict[str, Any] = scope.get("extensions") or {}
    found = extensions.get(EXTENSION, {}).get("connection")
    return found if isinstance(found, Connection) else NoConnection()
