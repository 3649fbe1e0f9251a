"""The base of every model of the custom resource, and the helper that declares a field.

The wire is camelCase and closed: unknown fields are refused, numbers and texts are never coerced.
The JSON schema is already structural in Kubernetes' sense (no ``anyOf`` with null, no ``const``,
no ``additionalProperties: false``), so that a CRD can be made from it without corrections.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from torpor_protocol.api.rules import Rule

_REQUIRED: Any = ...


class ApiModel(BaseModel):
    """Frozen; snake_case in Python, camelCase on the wire."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        extra="forbid",
        strict=True,
        frozen=True,
        protected_namespaces=(),
    )
    rules: ClassVar[tuple[Rule, ...]] = ()

    @classmethod
    def from_wire(cls, data: object) -> Self:
        """The model from parsed JSON or YAML; snake_case names are unknown there."""
        return cls.model_validate(data, by_alias=True, by_name=False)

    def to_wire(self) -> dict[str, Any]:
        """Plain JSON types, camelCase, absent fields left out; ``from_wire`` reads it back."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: Any) -> Any:
        """As the API server does: a null is a known field that was not given."""
        if not isinstance(data, dict):
            return data
        known = {field.alias for field in cls.model_fields.values()} | set(cls.model_fields)
        return {key: value for key, value in data.items() if value is not None or key not in known}

    @model_validator(mode="after")
    def _hold_rules(self) -> Self:
        for rule in self.rules:
            if not rule.holds(self):
                raise rule.refusal()
        return self

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core_schema))
        # The field that holds the model describes it; a class docstring is for readers of the code.
        for key in ("title", "description", "additionalProperties"):
            schema.pop(key, None)
        for name, field in schema.get("properties", {}).items():
            schema["properties"][name] = _structural(field)
        if cls.rules:
            schema["x-kubernetes-validations"] = [rule.as_validation() for rule in cls.rules]
        return schema


def _structural(field: dict[str, Any]) -> dict[str, Any]:
    choices = field.pop("anyOf", [])
    for choice in choices:
        if choice != {"type": "null"}:
            field = choice | field
    if "const" in field:
        field["enum"] = [field.pop("const")]
    if field.get("default", ...) is None:
        del field["default"]
    field.pop("title", None)
    field.pop("examples", None)
    return field


def setting(
    text: str,
    *,
    unit: str,
    example: Any,
    default: Any = _REQUIRED,
    factory: Callable[[], Any] | None = None,
    shown: str = "",
    ge: int | None = None,
    le: int | None = None,
    most: int | None = None,
) -> Any:
    """A field whose description names unit, default and example.

    ``shown`` says what an absent value stands for; ``most`` bounds the items of a list or map.
    A ``factory`` of a model gets ``default: {}`` in the schema, so that nested defaults apply.
    """
    empty = factory() if factory else None
    nested = isinstance(empty, BaseModel)
    if not shown:
        if factory:
            shown = "the defaults of its fields" if nested else "empty"
        else:
            shown = "none, it is required" if default is _REQUIRED else _plain(default)
    extra: dict[str, Any] = {"default": {}} if nested else {}
    arguments: dict[str, Any] = {"default_factory": factory} if factory else {"default": default}
    return Field(
        **arguments,
        description=f"{text} Unit: {unit}. Default: {shown}. Example: {_plain(example)}.",
        examples=[example],
        json_schema_extra=extra,
        ge=ge,
        le=le,
        max_length=most,
    )


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
