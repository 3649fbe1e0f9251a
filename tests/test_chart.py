"""The chart's values are closed, and its defaults pass their own schema."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

CHART = Path(__file__).resolve().parents[1] / "charts/torpor"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
TEMPLATES = sorted(path for path in (CHART / "templates").rglob("*") if path.is_file())


def changed(path: str, value: object) -> dict[str, Any]:
    values: Any = copy.deepcopy(VALUES)
    *parents, last = path.split(".")
    place = values
    for parent in parents:
        place = place[parent]
    place[last] = value
    return dict(values)


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if "properties" in schema:
            yield schema
        for child in schema.values():
            yield from objects(child)


def test_defaults_pass_and_every_value_is_known() -> None:
    jsonschema_rs.validate(SCHEMA, VALUES)
    assert set(SCHEMA["properties"]) - {"global"} == set(VALUES)


def test_every_object_with_fields_is_closed() -> None:
    found = list(objects(SCHEMA))
    assert len(found) > 5
    assert [each for each in found if each.get("additionalProperties") is not False] == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("image.repositry", "x"),
        ("image.tag", "a b"),
        ("image.digest", "sha256:1"),
        ("imagePullPolicy", "Sometimes"),
        ("watchNamespaces", "default"),
        ("watchNamespaces", ["a", "a"]),
        ("masterKey.existingSecret", "Upper"),
        ("masterKey.key", "../key"),
        ("runAsUser", 0),
        ("replicas", 2),
        ("metrics.enabled", "yes"),
    ],
)
def test_wrong_values_are_refused(path: str, value: object) -> None:
    assert not jsonschema_rs.is_valid(SCHEMA, changed(path, value))


@pytest.mark.parametrize(
    ("path", "value"),
    [("runAsUser", None), ("watchNamespaces", ["a", "b"]), ("image.repository", "r.io:5000/a/b")],
)
def test_right_values_are_taken(path: str, value: object) -> None:
    assert jsonschema_rs.is_valid(SCHEMA, changed(path, value))


def test_templates_read_only_values_that_exist() -> None:
    read = {
        name
        for path in TEMPLATES
        for name in re.findall(r"\.Values\.([A-Za-z.]+[A-Za-z])", path.read_text())
    }
    assert len(read) > 15
    for name in read:
        place = VALUES
        for part in name.split("."):
            assert part in place, name
            place = place[part]


def test_operator_has_the_name_that_engine_policies_let_in() -> None:
    labels = (CHART / "templates/_helpers.tpl").read_text().partition("torpor.selectorLabels")[2]
    assert labels.index("app.kubernetes.io/name: torpor-operator\n") < labels.index("end")


def test_versions_are_those_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = (CHART.parents[1] / "pyproject.toml").read_text()
    assert f'\nversion = "{chart["appVersion"]}"\n' in project
