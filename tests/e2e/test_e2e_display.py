"""What kubectl shows and offers for the resource: explain, columns, the scale subresource."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from api_proxy import GROUP, ApiProxy, api_proxy
from infd import infd
from kube import Kube, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600, func_only=True)]

# The longest name that is taken, so that all derived ones are seen to fit too.
NAME = "shown" + "-" * 30 + "to-40"
LABEL = "torpor.dev/deployment"
FORM = re.compile(r"\S.* Unit: \S.* Default: \S.* Example: \S.*\.$")


@pytest.fixture(scope="module")
def api() -> Iterator[ApiProxy]:
    with api_proxy() as proxy:
        yield proxy


@pytest.fixture(scope="module")
def shown(space: Kube, images: dict[str, str]) -> Iterator[str]:
    """Its workers want a device that no cluster has: it stays as it is, whatever the images."""
    assert len(NAME) == 40
    space.apply(
        infd(
            NAME,
            images["model"],
            worker={"accelerator": "torpor.dev/none-such"},
            parallelism={"pipeline": 2},
            standby={"maxReplicas": 0},
        )
    )
    wait_for(
        lambda: len(space.pods(NAME)) == 3,
        60,
        lambda: f"the pods are not made: {space.condition(NAME, 'ResourcesCreated')}",
    )
    yield NAME
    space.kubectl("delete", "infd", NAME, "--timeout=60s")


def fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Path and description of every field below, through lists."""
    inner = schema.get("items", schema)
    for name, field in inner.get("properties", {}).items():
        yield f"{path}.{name}", field.get("description", "")
        yield from fields(field, f"{path}.{name}")


def test_every_field_has_unit_default_and_example(api: ApiProxy, operator: Kube) -> None:
    """What explain reads: the API server's own document."""
    schemas = api.get(f"/openapi/v3{GROUP}")["components"]["schemas"]
    resource = schemas["dev.torpor.v1alpha1.InferenceDeployment"]["properties"]
    found = [*fields(resource["spec"], "spec"), *fields(resource["status"], "status")]
    assert len(found) > 150
    assert [path for path, told in found if not FORM.match(" ".join(told.split()))] == []


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("spec.worker.kvCacheMemory", "Unit: bytes per rank, as a quantity. Default: what a"),
        ("spec.standby", "level <integer> Depth of sleep. 1: weights are copied to host memory"),
        ("spec.engine.env.valueFrom", "Unit: reference. Default: absent. Example: {"),
        ("status.conditions", "reason <string> -required- Why, in one word. Unit: CamelCase word."),
    ],
)
def test_explain_shows_them(space: Kube, path: str, words: str) -> None:
    told = space.kubectl("explain", f"infd.{path}")
    assert words in " ".join(told.split()), told


def columns(text: str) -> dict[str, str]:
    """Of a table with one row; a column begins where its title does."""
    header, row = text.splitlines()
    starts = [match.start() for match in re.finditer(r"\S+", header)]
    ends = [*starts[1:], None]
    pairs = zip(starts, ends, strict=True)
    return {header[a:b].strip(): row[a:b].strip() for a, b in pairs}


def test_columns_answer_what_people_ask_first(space: Kube, shown: str) -> None:
    space.wait_reason(shown, "InsufficientGPU", 60)
    print(space.kubectl("get", "infd", shown))
    seen = columns(space.kubectl("get", "infd", shown))
    assert re.fullmatch(r"\d+m?\d*s?", seen.pop("AGE"))
    assert seen == {
        "NAME": shown,
        "READY": "False",
        "REASON": "InsufficientGPU",
        "AWAKE": "0",
        "ASLEEP": "0",
        "DESIRED": "1",
        "MODEL": shown,
    }
    wide = columns(space.kubectl("get", "infd", shown, "-o", "wide"))
    assert list(wide)[-4:] == ["URL", "PROGRESS", "REVISION", "MESSAGE"]
    assert wide["URL"] == f"http://{shown}.{space.namespace}.svc:8000"
    assert "torpor.dev/none-such" in wide["MESSAGE"]
    assert "inferencedeployment.torpor.dev/" + shown in space.kubectl("get", "all")


def test_the_scale_subresource_counts_engine_pods(api: ApiProxy, space: Kube, shown: str) -> None:
    path = f"{GROUP}/namespaces/{space.namespace}/inferencedeployments/{shown}/scale"
    scale = api.get(path)
    assert scale["spec"] == {"replicas": 1}
    assert scale["status"]["replicas"] == 0
    selector = scale["status"]["selector"]
    chosen = {pod["metadata"]["name"] for pod in space.listed("pods", selector)}
    assert chosen == {f"{shown}-0-engine"}, selector


def test_every_child_is_owned_and_labelled(space: Kube, shown: str) -> None:
    uid = space.get("infd", shown)["metadata"]["uid"]
    kinds = "pods,services,secrets,networkpolicies,poddisruptionbudgets"
    children = space.listed(kinds, f"{LABEL}={shown}")
    found = sorted(f"{each['kind']} {each['metadata']['name']}" for each in children)
    assert found == [
        f"NetworkPolicy {shown}-engine",
        f"NetworkPolicy {shown}-workers",
        f"Pod {shown}-0-engine",
        f"Pod {shown}-0-worker-0",
        f"Pod {shown}-0-worker-1",
        f"PodDisruptionBudget {shown}",
        f"Secret {shown}-keys",
        f"Service {shown}",
        f"Service {shown}-pods",
    ]
    for child in children:
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (uid, True), child["metadata"]
        assert len(child["metadata"]["name"]) <= 63


def test_kubectl_scale_writes_the_wanted_replicas(space: Kube, shown: str) -> None:
    before = space.uids(shown)
    space.kubectl("scale", "infd", shown, "--current-replicas=1", "--replicas=2")
    wait_for(
        lambda: len(space.pods(shown)) == 6, 60, lambda: f"no second replica: {space.pods(shown)}"
    )
    assert before.items() <= space.uids(shown).items()
    space.scale(shown, 1)
    both = space.uids(shown)
    wait_for(lambda: len(space.pods(shown)) == 3, 90, lambda: f"it stays: {space.uids(shown)}")
    assert space.uids(shown).items() <= both.items(), "no pod is made for scaling down"
