"""A parsed body to a request model, or to one error that names the first wrong field."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import ValidationError

from torpor_engine.api.errors import ApiError, invalid, model_not_found, shorten
from torpor_engine.api.schemas.fields import RequestModel

RequestT = TypeVar("RequestT", bound=RequestModel)
MAX_PARAM_CHARS = 128


def validate(kind: type[RequestT], body: dict[str, Any]) -> RequestT:
    """Raises ApiError (400) for the first error that pydantic finds."""
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        raise _first_error(error) from None


def check_model(name: str | None, served: list[str]) -> str:
    """The name to answer with. Raises ApiError (404) for a model that is not served."""
    if not name:
        return served[0]
    if name not in served:
        raise model_not_found(name, served)
    return name


def _first_error(error: ValidationError) -> ApiError:
    found = error.errors(include_url=False, include_context=False, include_input=False)[0]
    path = [str(part) for part in found["loc"] if part != "[key]"]
    param = shorten(".".join(path), MAX_PARAM_CHARS) or None
    if found["type"] == "missing":
        return invalid(f"'{param}' is missing.", param, code="missing_required_parameter")
    reason = found["msg"].removeprefix("Value error, ")
    where = f"'{param}': " if param else ""
    code = "invalid_type" if found["type"].endswith("_type") else "invalid_value"
    return invalid(f"{where}{reason}.", param, code=code)
