"""The JSON schema of the models is one that Kubernetes takes, and it explains itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import TypeAdapter

from manifests import models
from torpor_protocol.api.crd import openapi_schema
from torpor_protocol.api.fields import by_alias

# What apiextensions.k8s.io/v1 knows of JSON schema, as far as it is used here.
KNOWN_KEYS = {
    "additionalProperties",
    "default",
    "description",
    "enum",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minLength",
    "minimum",
    "pattern",
    "properties",
    "required",
    "type",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
}


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from nodes(schema[key], f"{path}[]")


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return openapi_schema()


def test_every_node_is_structural(schema: dict[str, Any]) -> None:
    visited = 0
    for path, node in nodes(schema):
        visited += 1
        assert set(node) <= KNOWN_KEYS, path
        assert ("type" in node) != ("x-kubernetes-int-or-string" in node), path
        assert not {"properties", "additionalProperties"} <= set(node), path
    assert visited > 150


def test_every_list_and_map_under_a_rule_is_bounded(schema: dict[str, Any]) -> None:
    """An unbounded list makes the API server refuse the CRD: its rules might cost too much."""
    for path, node in nodes(schema["properties"]["spec"]):
        if node.get("type") == "array":
            assert "maxItems" in node, path
        if "additionalProperties" in node:
            assert "maxProperties" in node, path
        if node.get("type") == "string" and "enum" not in node:
            assert "maxLength" in node, path


def test_every_field_is_described_with_unit_default_and_example(schema: dict[str, Any]) -> None:
    for path, node in nodes(schema):
        if path and not path.endswith("[]"):
            text = node["description"]
            assert text.index(" Unit: ") < text.index(" Default: ") < text.index(" Example: ")


def test_defaults_in_descriptions_are_the_defaults_of_the_schema(schema: dict[str, Any]) -> None:
    shown = 0
    for path, node in nodes(schema["properties"]["spec"]):
        default = node.get("default", {})
        if default != {}:
            text = default if isinstance(default, str) else str(default).lower()
            assert f"Default: {text}." in node["description"], path
            shown += 1
    assert shown > 30


def test_every_example_is_accepted() -> None:
    tried = 0
    for model in models():
        for alias, field in by_alias(model).items():
            (example,) = field.examples or [None]
            annotation: Any = field.rebuild_annotation()
            checked = TypeAdapter[Any](annotation).validate_python(example)
            assert checked is not None, f"{model.__name__}.{alias}"
            tried += 1
    assert tried > 100


def test_rules_are_in_the_schema() -> None:
    for model in models():
        rules = model.model_json_schema().get("x-kubernetes-validations", [])
        assert rules == [rule.as_validation() for rule in model.rules]


def test_replicas_have_no_default_in_the_schema(schema: dict[str, Any]) -> None:
    """The API server would fill it in and then refuse every resource with autoscaling."""
    assert "default" not in schema["properties"]["spec"]["properties"]["replicas"]
