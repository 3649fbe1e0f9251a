"""Field types that several requests share, and the rules of every request model.

Requests are strict (a string is no number, a boolean no integer) but for whole floats such as 16.0,
which JSON does not tell from integers. A field that is null is a field that was left out. Fields
that nobody knows are ignored, because clients send many.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from torpor_protocol.limits import (
    MAX_LOGIT_BIAS,
    MAX_NAME_CHARS,
    MAX_PROMPTS,
    MAX_STOP_LENGTH,
    MAX_STOP_STRINGS,
    MAX_TOKENS_FIELD,
)


class RequestModel(BaseModel):
    model_config = ConfigDict(
        strict=True, extra="ignore", allow_inf_nan=False, hide_input_in_errors=True
    )


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Whole = Annotated[int, BeforeValidator(_whole)]
Count = Annotated[Whole, Field(ge=1, le=MAX_TOKENS_FIELD)]
TokenId = Annotated[Whole, Field(ge=0, le=MAX_TOKENS_FIELD)]
Name = Annotated[str, Field(max_length=MAX_NAME_CHARS)]

_STOP_SCHEMA = {
    "anyOf": [
        {"type": "string", "minLength": 1, "maxLength": MAX_STOP_LENGTH},
        {
            "type": "array",
            "maxItems": MAX_STOP_STRINGS,
            "items": {"type": "string", "minLength": 1, "maxLength": MAX_STOP_LENGTH},
        },
        {"type": "null"},
    ],
    "default": None,
    "description": "Text that ends the answer, or a list of such texts.",
}
_StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_LENGTH)]
StopStrings = Annotated[
    Annotated[list[_StopString], Field(max_length=MAX_STOP_STRINGS)] | None,
    BeforeValidator(_as_list),
    WithJsonSchema(_STOP_SCHEMA),
]

LogitBias = Annotated[
    dict[Annotated[str, Field(pattern=r"^[0-9]{1,10}$")], Annotated[float, Field(ge=-100, le=100)]],
    Field(max_length=MAX_LOGIT_BIAS),
]

_TOKEN_LIST = {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}}
_PROMPT_SCHEMA = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {
            "type": "array",
            "minItems": 1,
            "maxItems": MAX_PROMPTS,
            "items": {"type": "string", "minLength": 1},
        },
        _TOKEN_LIST,
        {"type": "array", "minItems": 1, "maxItems": MAX_PROMPTS, "items": _TOKEN_LIST},
    ],
    "description": "A text, a list of texts, a list of token ids, or a list of such lists.",
}
# Checked in `prompts`: a union of these would report every way in which a value is none of them.
Prompt = Annotated[Any, WithJsonSchema(_PROMPT_SCHEMA)]
