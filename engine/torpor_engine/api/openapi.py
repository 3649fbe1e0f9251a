"""/openapi.json: the bodies that the routes parse themselves, and the statuses they really give."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from torpor_engine.api.schemas.answers import ErrorBody

_REFERENCE = "#/components/schemas/{model}"
_DESCRIPTIONS = {
    400: "The request is wrong; the message says where.",
    401: "The key is missing or wrong.",
    404: "The model does not exist.",
    408: "The body came too slowly.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    429: "More requests than the server can take; Retry-After says when to come back.",
    503: "Asleep, loading, draining or failed; Retry-After says when to come back.",
}

Responses = dict[int | str, dict[str, Any]]


def errors(*statuses: int) -> Responses:
    """For a route's ``responses``: each with the error object."""
    return {
        status: {"model": ErrorBody, "description": _DESCRIPTIONS[status]} for status in statuses
    }


BODY_ERRORS = errors(400, 401, 404, 408, 413, 415, 429, 503)


def json_body(model: type[BaseModel]) -> dict[str, Any]:
    """For a route's ``openapi_extra``: it reads a body of ``model``."""
    schema = {"$ref": _REFERENCE.format(model=model.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def install_openapi(app: FastAPI, bodies: Iterable[type[BaseModel]]) -> None:
    """Give ``app`` a document that knows ``bodies`` and does not claim FastAPI's own 422."""
    models: list[tuple[type[BaseModel], Literal["validation", "serialization"]]]
    models = [(model, "validation") for model in bodies]

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(title=app.title, version=app.version, routes=app.routes)
            schemas = made.setdefault("components", {}).setdefault("schemas", {})
            _, definitions = models_json_schema(models, ref_template=_REFERENCE)
            schemas.update(definitions.get("$defs", {}))
            for name in ("HTTPValidationError", "ValidationError"):
                schemas.pop(name, None)
            for path in made["paths"].values():
                for operation in path.values():
                    operation["responses"].pop("422", None)
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]
