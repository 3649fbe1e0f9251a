"""What is missing or wrong is told in `kubectl get infd`, disturbs nobody, and heals by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from cluster_kit import SYSTEM
from infd import infd, runtime, with_tag
from kube import Kube, Object, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900, func_only=True)]

# From apply to the reason. Ten are meant, and printed; how busy the cluster is, no test knows.
LIMIT = 60.0
ABSENT = "none-such"
# Keeps an engine pod that the case does not need from running; a worker's trouble is told first.
NO_ENGINE = {"engine": {"nodeSelector": {"torpor.dev/none-such": "true"}}}
REFERENCE = {"secretKeyRef": {"name": "later-env", "key": "level"}}
VOLUME = {"name": "ca", "mountPath": "/ca", "secret": {"secretName": "later-volume"}}


@dataclass(frozen=True)
class Bad:
    """``about``: the condition that names it beside Ready."""

    spec: Callable[[dict[str, str]], dict[str, Any]]
    reason: str
    words: str
    about: str = "WorkersReady"


def worker(**fields: Any) -> Callable[[dict[str, str]], dict[str, Any]]:
    return lambda images: {**NO_ENGINE, "worker": fields}


def source(uri: str) -> Callable[[dict[str, str]], dict[str, Any]]:
    return lambda images: {"model": {"source": uri}}


CASES = {
    "image": Bad(
        lambda images: runtime(with_tag(images["runtime"], ABSENT)),
        "ImagePullFailed",
        "Push it, or correct spec.worker.image.",
    ),
    "model-image": Bad(
        lambda images: {"model": {"source": f"oci://{with_tag(images['model'], ABSENT)}"}},
        "ModelNotFound",
        "Push it, or correct spec.model.source.",
    ),
    "claim": Bad(source("pvc://none-such/m"), "VolumeNotFound", "Create the claim, or correct"),
    "gpu": Bad(
        worker(accelerator="torpor.dev/e2e"), "InsufficientGPU", "nodes with torpor.dev/e2e."
    ),
    "memory": Bad(
        worker(resources={"requests": {"memory": "1Pi"}}), "Unschedulable", "or ask for less."
    ),
    "affinity": Bad(
        worker(affinity={"nodeAfinity": {}}), "InvalidSpec", "nodeAfinity", "ResourcesCreated"
    ),
    "hub": Bad(source("hf://org/name"), "InvalidSpec", "Put the model on a volume", "SpecValid"),
    "autoscaling": Bad(
        lambda images: {"replicas": None, "autoscaling": {"maxReplicas": 2}},
        "InvalidSpec",
        "Set spec.replicas, or let an HPA",
        "SpecValid",
    ),
    "path": Bad(
        source("file:///none-such/model"),
        "ModelNotFound",
        "/none-such/model",
        about="EngineReady",
    ),
    # These heal below: the sooner the shorter are the pauses of the kubelet.
    "volume": Bad(worker(volumes=[VOLUME]), "VolumeNotFound", "Create what is missing"),
    "variable": Bad(
        worker(env=[{"name": "LEVEL", "valueFrom": REFERENCE}]),
        "InvalidSpec",
        "Create it, or correct spec.worker.env.",
    ),
    "account": Bad(
        worker(serviceAccountName="later"), "InvalidSpec", '"later" not found', "ResourcesCreated"
    ),
}


def operator_pod() -> tuple[str, int]:
    """Uid and restarts."""
    (pod,) = Kube(SYSTEM).listed("pods", "app.kubernetes.io/component=operator")
    return pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"]


def reason_column(kube: Kube, name: str) -> str:
    row = kube.kubectl("get", "infd", name, "--no-headers").split()
    return row[2] if len(row) > 3 else ""


@pytest.fixture(scope="module", autouse=True)
def untouched(kube: Kube) -> Iterator[None]:
    """None of it restarts the operator."""
    before = operator_pod()
    yield
    print(kube.kubectl("get", "infd", "-o", "wide"))
    assert operator_pod() == before


@pytest.mark.parametrize("name", CASES)
def test_it_is_told(space: Kube, images: dict[str, str], name: str) -> None:
    case = CASES[name]
    space.apply(infd(name, images["model"], **case.spec(images)))
    started = time.monotonic()
    wait_for(
        lambda: reason_column(space, name) == case.reason,
        LIMIT,
        lambda: f"the column says {reason_column(space, name)!r}: {space.condition(name)}",
    )
    print(f"{name}: {case.reason} after {time.monotonic() - started:.1f} s")
    ready, about = space.condition(name), space.condition(name, case.about)
    assert case.words in ready["message"]
    assert (about["status"], about["reason"]) == ("False", case.reason)
    assert "\n" not in ready["message"]


def secret(name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "stringData": {"level": "INFO"},
    }


ACCOUNT: Object = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "later"}}


@pytest.mark.parametrize(
    ("name", "thing"),
    [("volume", secret("later-volume")), ("variable", secret("later-env")), ("account", ACCOUNT)],
)
def test_it_heals_when_the_thing_appears(space: Kube, name: str, thing: Object) -> None:
    """Only the engine's selector is left then."""
    space.apply(thing)
    started = time.monotonic()
    wait_for(
        lambda: (
            (space.condition(name, "WorkersReady")["reason"] != CASES[name].reason)
            and reason_column(space, name) != CASES[name].reason
        ),
        180,
        lambda: f"it stays {space.condition(name)}",
    )
    print(f"{name}: healed {time.monotonic() - started:.1f} s after it appeared")
    space.kubectl("delete", "infd", name, "--timeout=60s")


def test_nothing_is_made_of_a_spec_that_is_not_valid(space: Kube) -> None:
    for name in ("hub", "autoscaling"):
        assert space.listed("pods,services", f"torpor.dev/deployment={name}") == []


def test_what_stays_wrong_is_told_once(space: Kube) -> None:
    """Pulls, mounts and restarts are tried again meanwhile; no status is written for it."""
    before = versions(space)
    assert before
    time.sleep(15)
    assert versions(space) == before, space.kubectl("get", "infd", "-o", "wide")


def versions(kube: Kube) -> dict[str, str]:
    return {
        each["metadata"]["name"]: each["metadata"]["resourceVersion"]
        for each in kube.listed("infd")
    }
