"""Around every request: its id, and whether the caller may make it.

Plain ASGI, so that a stream's bytes and the client's disconnect pass through untouched. The key is
decided on ``scope["path"]``, which routing uses too: a path rebuilt from headers is the client's.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from hashlib import sha256
from hmac import compare_digest

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from torpor_engine.api.errors import ApiError

REQUEST_ID_HEADER = "x-request-id"
PROBES = frozenset({"/health", "/livez", "/readyz"})
_REQUEST_ID = re.compile(r"[!-~]{1,128}")


def request_id(scope: Scope) -> str:
    """The id that `RequestId` gave the request."""
    found: str = scope["state"]["request_id"]
    return found


class RequestId:
    """The client's own X-Request-Id where it has a sane one; on every response, errors too."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(REQUEST_ID_HEADER, "")
        name = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(16)
        scope.setdefault("state", {})["request_id"] = name
        header = (REQUEST_ID_HEADER.encode(), name.encode())

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), header]
            await send(message)

        await self._app(scope, receive, send_with_id)


class BearerAuth:
    """Refuses (401) what has none of ``keys`` before its body is read, but for the probes."""

    def __init__(self, app: ASGIApp, keys: Iterable[str]) -> None:
        self._app = app
        self._hashes = [sha256(key.encode()).digest() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in PROBES or self._allowed(scope):
            await self._app(scope, receive, send)
            return
        await _unauthorized().response()(scope, receive, send)

    def _allowed(self, scope: Scope) -> bool:
        """Hashes of one length, each compared in constant time and none left out."""
        kind, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
        given = sha256(key.strip().encode()).digest()
        matches = [compare_digest(given, known) for known in self._hashes]
        return kind.lower() == "bearer" and any(matches)


def _unauthorized() -> ApiError:
    return ApiError(
        401,
        "invalid_api_key",
        "The key is missing or wrong. Send Authorization: Bearer <key>.",
        headers={"WWW-Authenticate": "Bearer"},
    )
