"""The definition in the repository is what the models say, and what it names exists in them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import make_crd
from torpor_protocol.api.crd import crd

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def version() -> dict[str, Any]:
    (only,) = crd()["spec"]["versions"]
    return dict(only)


def field(schema: dict[str, Any], path: str) -> dict[str, Any]:
    """The schema of a JSONPath such as ``.status.conditions[?(@.type=="Ready")].status``."""
    for part in re.findall(r"\.(\w+)(?:\[[^]]*\])?", re.sub(r"\[\?.*?\)\]", "[]", path)):
        schema = schema.get("items", schema)["properties"][part]
    return schema


def test_files_are_what_the_models_say() -> None:
    assert make_crd.differing(ROOT, make_crd.files()) == [], "run make crds"


def test_a_difference_is_found_and_repaired(tmp_path: Path) -> None:
    assert make_crd.main([], tmp_path) == 0
    path = tmp_path / make_crd.PLAIN
    path.write_text(path.read_text().replace("infd", "other"))
    assert make_crd.main(["--check"], tmp_path) == 1
    assert make_crd.main([], tmp_path) == 0
    assert make_crd.main(["--check"], tmp_path) == 0


def test_yaml_reads_back_without_anchors() -> None:
    text = make_crd.files()[make_crd.PLAIN]
    assert yaml.safe_load(text) == crd()
    assert not re.search(r"[:-] [&*]\w+$", text, re.MULTILINE)


def test_chart_copy_differs_by_the_keep_policy_only() -> None:
    copy = yaml.safe_load(make_crd.files()[make_crd.CHART])
    assert copy["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert copy == crd()


def test_scale_points_at_numbers_and_a_selector(version: dict[str, Any]) -> None:
    schema, scale = version["schema"]["openAPIV3Schema"], version["subresources"]["scale"]
    assert field(schema, scale["specReplicasPath"])["type"] == "integer"
    assert field(schema, scale["statusReplicasPath"])["type"] == "integer"
    assert field(schema, scale["labelSelectorPath"])["type"] == "string"


def test_columns_show_fields_of_the_models(version: dict[str, Any]) -> None:
    columns = version["additionalPrinterColumns"]
    shown = [column["name"] for column in columns if "priority" not in column]
    assert shown == ["Ready", "Reason", "Awake", "Asleep", "Desired", "Model", "Age"]
    for column in columns:
        if column["type"] != "date":
            found = field(version["schema"]["openAPIV3Schema"], column["jsonPath"])
            assert found["type"] == column["type"], column["name"]


def test_conditions_and_replicas_are_lists_by_key(version: dict[str, Any]) -> None:
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    assert status["conditions"]["x-kubernetes-list-map-keys"] == ["type"]
    assert status["replicaStatuses"]["x-kubernetes-list-map-keys"] == ["index"]
    for name in ("conditions", "replicaStatuses"):
        keys = set(status[name]["x-kubernetes-list-map-keys"])
        assert keys <= set(status[name]["items"]["required"])
