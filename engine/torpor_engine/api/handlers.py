"""Every exception that a route can end with, as OpenAI's error object."""

from __future__ import annotations

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from torpor_engine.api.errors import ApiError, internal_error, invalid, unavailable
from torpor_engine.api.middleware import REQUEST_ID_HEADER, request_id
from torpor_protocol.errors import EngineDead

log = logging.getLogger(__name__)

_CODES = {404: "not_found", 405: "method_not_allowed"}


def add_handlers(app: FastAPI) -> None:
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _query_error)
    app.add_exception_handler(EngineDead, _engine_dead)
    app.add_exception_handler(Exception, _unexpected)


async def _api_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, ApiError):
        raise error
    return error.response()


async def _http_error(request: Request, error: Exception) -> Response:
    """Raised by routing: no such path, or no such method on it."""
    if not isinstance(error, HTTPException):
        raise error
    code = _CODES.get(error.status_code, "invalid_request")
    return ApiError(error.status_code, code, f"{error.detail}.", headers=error.headers).response()


async def _query_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    found = error.errors()[0]
    param = ".".join(str(part) for part in found["loc"][1:])
    return invalid(f"'{param}': {found['msg']}.", param).response()


async def _engine_dead(request: Request, error: Exception) -> Response:
    return unavailable("engine_dead", "The engine is not running.", 10).response()


async def _unexpected(request: Request, error: Exception) -> Response:
    """Runs outside the middleware, so it adds the id itself; the server logs the traceback."""
    response = internal_error().response()
    response.headers[REQUEST_ID_HEADER] = request_id(request.scope)
    return response
