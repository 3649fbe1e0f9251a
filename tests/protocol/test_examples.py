"""Every example is one that the API server takes, and its parts fit together."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from torpor_protocol.api import KIND, InferenceDeployment
from torpor_protocol.api.crd import openapi_schema
from torpor_protocol.safe_yaml import read_documents

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = (
    "laptop",
    "one-gpu",
    "pipeline",
    "sleep-by-schedule",
    "tensor-parallel",
    "wake-on-request",
)


def documents(name: str) -> list[dict[str, Any]]:
    found = read_documents((EXAMPLES / f"{name}.yaml").read_bytes())
    return [document for document in found if isinstance(document, dict)]


def deployment(name: str) -> InferenceDeployment:
    (resource,) = [each for each in documents(name) if each["kind"] == KIND]
    return InferenceDeployment.from_wire(resource)


def test_every_example_is_here_and_in_the_readme() -> None:
    files = {path.stem for path in EXAMPLES.glob("*.yaml")}
    assert files == {*NAMES, "model-claim"}
    assert files == set(re.findall(r"([\w-]+)\.yaml", (EXAMPLES / "README.md").read_text()))


@pytest.mark.parametrize("name", NAMES)
def test_example_is_valid_and_serves_under_a_given_name(name: str) -> None:
    example = deployment(name)
    assert example.spec.model.location.scheme == "pvc"
    assert example.spec.model.location.name == "models"
    assert example.spec.model.served_names
    assert example.status is None


def test_cpu_examples_ask_for_no_device() -> None:
    devices = {name: deployment(name).spec.worker.accelerator for name in NAMES}
    assert devices.pop("one-gpu") == "nvidia.com/gpu"
    assert set(devices.values()) == {"none"}


def test_layouts_are_what_their_names_say() -> None:
    tensor, pipeline = deployment("tensor-parallel").spec, deployment("pipeline").spec
    assert (tensor.parallelism.world_size, tensor.ranks_per_pod) == (3, 1)
    assert (pipeline.parallelism.pipeline, pipeline.ranks_per_pod) == (2, 1)
    spread = tensor.worker.topology_spread_constraints[0]["labelSelector"]
    assert spread == {
        "matchLabels": {"torpor.dev/deployment": "tensor-parallel", "torpor.dev/role": "worker"}
    }


def test_wake_on_request_keeps_something_that_can_wake() -> None:
    spec = deployment("wake-on-request").spec
    assert spec.replicas == 0
    assert spec.standby.min_replicas > 0
    assert spec.wake.on_request


def test_schedule_scales_its_deployment_with_its_own_rights_and_no_more() -> None:
    parts = {(each["kind"], each["metadata"]["name"]): each for each in documents(NAMES[3])}
    name = deployment(NAMES[3]).metadata.name
    assert deployment(NAMES[3]).spec.replicas is None, "apply would overrule the schedule"
    account = parts["ServiceAccount", "office-hours-scaler"]["metadata"]["name"]
    rules = parts["Role", account]["rules"]
    assert [rule["resourceNames"] for rule in rules] == [[name], [name]]
    assert [rule["verbs"] for rule in rules] == [["get"], ["patch"]]
    (subject,) = parts["RoleBinding", account]["subjects"]
    assert subject == {"kind": "ServiceAccount", "name": account}
    commands = {}
    for kind, job in parts:
        if kind == "CronJob":
            pod = parts[kind, job]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
            assert pod["serviceAccountName"] == account
            commands[job] = pod["containers"][0]["command"]
    scale = ["kubectl", "scale", f"infd/{name}"]
    assert commands == {
        "office-hours-wake": [*scale, "--replicas=1"],
        "office-hours-sleep": [*scale, "--replicas=0"],
    }


def test_replicas_may_be_absent_for_the_scale_subresource() -> None:
    spec = openapi_schema()["properties"]["spec"]
    assert "replicas" not in spec["required"]
    assert "default" not in spec["properties"]["replicas"]
