"""Texts and lists with a form: the pattern for the API server and the words for a reader.

A bare regular expression in an error message helps nobody; each form says in words what it takes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, JsonValue, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from torpor_protocol.api.rules import refusal


@dataclass(frozen=True)
class Form:
    """A text that matches ``pattern`` (anchored, RE2 and Python alike; "" = any text)."""

    words: str
    pattern: str
    longest: int
    shortest: int = 1

    def check(self, text: str) -> str:
        if not self.shortest <= len(text) <= self.longest:
            raise refusal(f"must have {self.shortest} to {self.longest} characters")
        if self.pattern and not re.fullmatch(self.pattern, text):
            raise refusal(f"must be {self.words}")
        return text

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        bounds: JsonSchemaValue = {"minLength": self.shortest, "maxLength": self.longest}
        if self.pattern:
            bounds["pattern"] = self.pattern
        return handler(schema) | bounds


@dataclass(frozen=True)
class Unique:
    """A list without repetition: of scalars (a set) or of objects that ``key`` tells apart."""

    key: str = ""

    def check(self, items: list[Any]) -> list[Any]:
        seen: set[Any] = set()
        for item in items:
            name = getattr(item, self.key) if self.key else item
            if name in seen:
                what = f"{self.key} {name}" if self.key else str(name)
                raise refusal(f"must not repeat {what}", "Keep one of the equal entries.")
            seen.add(name)
        return items

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        if not self.key:
            return handler(schema) | {"x-kubernetes-list-type": "set"}
        kind = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [self.key]}
        return handler(schema) | kind


@dataclass(frozen=True)
class KeyedBy:
    """A map whose keys have ``form``. Kubernetes knows no patterns for keys, so a rule says it."""

    form: Form

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        found = handler(schema)
        found.pop("propertyNames", None)
        for values in found.pop("patternProperties", {}).values():
            found["additionalProperties"] = values
        rule = f"self.all(key, key.matches(r'{self.form.pattern}'))"
        found["x-kubernetes-validations"] = [
            {"rule": rule, "message": f"each key must be {self.form.words}"}
        ]
        return found


Value = TypeVar("Value")

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = r"([a-z0-9][-a-z0-9.]*/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"

DnsLabel = Annotated[
    str, Form("lower-case letters, digits and dashes, as a DNS label", f"^{_LABEL}$", 63)
]
ObjectName = Annotated[
    str,
    Form(
        "lower-case letters, digits, dashes and dots, as the name of an object",
        rf"^{_LABEL}(\.{_LABEL})*$",
        253,
    ),
]
SecretKey = Annotated[
    str, Form("a key of letters, digits, dashes, dots and underscores", r"^[-._a-zA-Z0-9]+$", 253)
]
_QUALIFIED_NAME = Form("a qualified name such as example.com/name", f"^{_QUALIFIED}$", 317)
QualifiedName = Annotated[str, _QUALIFIED_NAME]
LabelValue = Annotated[
    str,
    Form(
        "a label value: letters, digits, dashes, dots and underscores",
        r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$",
        63,
        shortest=0,
    ),
]
ImageReference = Annotated[
    str,
    Form(
        "an image reference such as registry.example.com/name:tag or name@sha256:digest",
        r"^[a-z0-9][A-Za-z0-9._:/@-]*$",
        512,
    ),
]
NameMap = Annotated[dict[QualifiedName, Value], KeyedBy(_QUALIFIED_NAME)]
Digest = Annotated[
    str,
    Form("sha256: and 64 hexadecimal digits", "^sha256:[0-9a-f]{64}$", 71, shortest=71),
]
ResourceName = Annotated[
    str,
    Form(
        "none or the resource name of a device, domain and name",
        "^(none|[a-z0-9][-a-z0-9.]*/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)$",
        317,
    ),
]

# Handed to the API server as it is, which checks it when the pod is made.
OpaqueObject = Annotated[
    dict[str, JsonValue],
    WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
]
