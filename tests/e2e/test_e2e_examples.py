"""Every example is taken by the API server and by the operator."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from kube import Kube, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600, func_only=True)]

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.yaml"))
KIND = "InferenceDeployment"


def deployments(path: Path) -> list[str]:
    documents = yaml.safe_load_all(path.read_text())
    return [each["metadata"]["name"] for each in documents if each["kind"] == KIND]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_api_server_takes_it(space: Kube, path: Path) -> None:
    told = space.kubectl("apply", "--dry-run=server", "-f", str(path))
    kinds = [each["kind"] for each in yaml.safe_load_all(path.read_text())]
    assert told.count("created (server dry run)") == len(kinds)


@pytest.mark.parametrize(
    "path", [p for p in EXAMPLES if deployments(p)], ids=lambda path: path.stem
)
def test_the_operator_takes_it(space: Kube, path: Path) -> None:
    """All its objects are made; without the claim `models` its pods go nowhere."""
    space.kubectl("apply", "-f", str(path))
    for name in deployments(path):
        wait_for(
            lambda name=name: space.condition(name, "ResourcesCreated").get("status") == "True",
            60,
            lambda name=name: f"{name}: {space.condition(name, 'ResourcesCreated')}",
        )
        assert space.condition(name, "SpecValid")["status"] == "True"
        assert space.exists("service", name) and space.pods(name, "engine")
    space.kubectl("delete", "-f", str(path), "--timeout=90s")
    for name in deployments(path):
        wait_for(lambda name=name: not space.pods(name), 60, lambda: f"pods of {path.stem} stay")
