"""What a client is told when something is wrong: OpenAI's error object and its status.

A client gets a status, a stable code and one or two sentences. It never gets a traceback, the text
of an exception, a path, or more than a short piece of what it sent.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson
from starlette.responses import Response

MAX_MESSAGE_CHARS = 500
MAX_ECHO_CHARS = 64

_TYPES = {401: "authentication_error", 429: "rate_limit_error"}


class ApiError(Exception):
    """``param``: dotted path of the request's field; ``code``: stable, for programs."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = shorten(message, MAX_MESSAGE_CHARS)
        self.param = param
        self.headers = dict(headers or {})

    def body(self) -> bytes:
        return orjson.dumps({"error": self._object()})

    def event(self) -> bytes:
        """The error inside a stream whose status has been sent."""
        return b"data: " + self.body() + b"\n\n"

    def response(self) -> Response:
        return Response(self.body(), self.status, self.headers, media_type="application/json")

    def _object(self) -> dict[str, str | None]:
        return {
            "message": self.message,
            "type": _TYPES.get(self.status, self._general_type()),
            "param": self.param,
            "code": self.code,
        }

    def _general_type(self) -> str:
        if self.status < 500:
            return "invalid_request_error"
        return "internal_error" if self.status == 500 else "service_unavailable_error"


def shorten(text: str, limit: int = MAX_ECHO_CHARS) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


def invalid(message: str, param: str | None = None, code: str = "invalid_value") -> ApiError:
    return ApiError(400, code, message, param=param)


def unsupported(message: str, param: str) -> ApiError:
    return ApiError(400, "unsupported_parameter", message, param=param)


def model_not_found(name: str, known: list[str]) -> ApiError:
    names = ", ".join(known)
    message = f"The model '{shorten(name)}' does not exist. This server has: {names}."
    return ApiError(404, "model_not_found", message, param="model")


def context_length_exceeded(limit: int, tokens: int | None, param: str) -> ApiError:
    """``tokens`` is None when the prompt was too long to be worth counting."""
    counted = "far more" if tokens is None else f"{tokens} tokens"
    message = (
        f"This model's maximum context length is {limit} tokens, and at least one of them must be "
        f"left for the answer. However, your prompt has {counted}. Shorten the prompt."
    )
    return ApiError(400, "context_length_exceeded", message, param=param)


def overloaded(retry_after: int) -> ApiError:
    message = "The server has as many requests as it can take. Try again later."
    return ApiError(429, "server_overloaded", message, headers={"Retry-After": str(retry_after)})


def unavailable(code: str, message: str, retry_after: int, *, close: bool = False) -> ApiError:
    headers = {"Retry-After": str(retry_after)}
    if close:
        headers["Connection"] = "close"
    return ApiError(503, code, message, headers=headers)


def internal_error(message: str = "The server failed on this request.") -> ApiError:
    """For one request; a repeat would fail in the same way, which the header tells the SDK."""
    return ApiError(500, "internal_error", message, headers={"x-should-retry": "false"})
