"""Reading a request's body within bounds: its size, its time, and that of all bodies together."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import ClientDisconnect, Request

from torpor_engine.api.errors import ApiError, invalid, overloaded
from torpor_engine.api.json_body import parse_object
from torpor_engine.api.settings import ApiSettings

_RETRY_AFTER = 1


class BodyReader:
    """``settings`` bounds one body and, by ``max_bodies_bytes``, all that are being read."""

    def __init__(self, settings: ApiSettings) -> None:
        self._settings = settings
        self._held = 0

    async def read_object(self, request: Request) -> dict[str, Any]:
        """The body as a JSON object; raises ApiError for everything that is wrong with it."""
        _check_headers(request)
        limit = self._settings.max_body_bytes
        if _announced_length(request) > limit:
            raise _too_large(limit)
        held = 0
        body = bytearray()
        try:
            async with asyncio.timeout(self._settings.body_seconds):
                async for chunk in request.stream():
                    held += len(chunk)
                    self._held += len(chunk)
                    if held > limit:
                        raise _too_large(limit)
                    if self._held > self._settings.max_bodies_bytes:
                        raise overloaded(_RETRY_AFTER)
                    body += chunk
        except TimeoutError:
            raise _too_slow(self._settings.body_seconds) from None
        except ClientDisconnect:
            raise invalid("The connection was closed within the body.") from None
        finally:
            self._held -= held
        return parse_object(bytes(body))


def _check_headers(request: Request) -> None:
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(
            415,
            "unsupported_media_type",
            "The body must be JSON: send Content-Type: application/json.",
        )
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise ApiError(
            415,
            "unsupported_media_type",
            "Compressed bodies are not accepted: leave out Content-Encoding.",
        )


def _announced_length(request: Request) -> int:
    """What Content-Length says, for an early answer only: what arrives is counted."""
    text = request.headers.get("content-length", "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def _too_large(limit: int) -> ApiError:
    message = f"The body is larger than {limit} bytes. Send a smaller request."
    return ApiError(413, "request_too_large", message)


def _too_slow(seconds: float) -> ApiError:
    message = f"The body did not arrive within {seconds:g} seconds."
    return ApiError(408, "request_timeout", message, headers={"Connection": "close"})
