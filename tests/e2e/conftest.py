"""A real cluster with the operator on it, as `scripts/cluster.sh up` and `images` left it.

Run by `make test-e2e`, which names the images in the environment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from audit_log import AuditLog
from cluster_kit import CLIENT, SYSTEM, client_pod
from helm_chart import install_operator
from kube import Kube
from operator_control import OperatorControl, clear_aborted_run
from warm_nodes import bring_images

# Asked once: the environment of each test holds nothing of the user's.
IMAGES = {
    name: os.environ.get(f"TORPOR_E2E_{name.upper()}_IMAGE", "")
    for name in ("operator", "runtime", "model")
}
CHILDREN = "app.kubernetes.io/managed-by=torpor-operator"
AUDIT_LOG = os.environ.get("TORPOR_E2E_AUDIT_LOG", "")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What looks back at the whole run comes last, whatever its file is called."""
    items.sort(key=lambda item: getattr(getattr(item, "module", None), "RUNS_LAST", False))


@pytest.fixture(scope="session")
def images() -> dict[str, str]:
    missing = [name for name, image in IMAGES.items() if not image]
    if missing:
        pytest.fail(f"No image of {', '.join(missing)} is named; run make test-e2e.", pytrace=False)
    return IMAGES


@pytest.fixture(scope="session")
def audit() -> AuditLog:
    """Of the cluster; may be none (``AuditLog.need``)."""
    return AuditLog(AUDIT_LOG)


@pytest.fixture(scope="session")
def first_moment(audit: AuditLog) -> str:
    """Of the run, before the operator is installed; in the audit log's form."""
    return audit.mark(Kube("default"))


@pytest.fixture(scope="session")
def nodes(images: dict[str, str]) -> frozenset[str]:
    """The nodes with the images; `operator` waits for them."""
    return bring_images(images)


@pytest.fixture(scope="session")
def operator(images: dict[str, str], nodes: frozenset[str], first_moment: str) -> Kube:
    """The chart, installed; gives the operator's namespace."""
    clear_aborted_run()
    install_operator(images)
    return Kube(SYSTEM)


@pytest.fixture(scope="module")
def control(operator: Kube) -> Iterator[OperatorControl]:
    """The operator, which logs nothing worse than INFO in the module's time."""
    control = OperatorControl()
    yield control
    assert not control.complaints()


@pytest.fixture(scope="module")
def space(operator: Kube, request: pytest.FixtureRequest) -> Iterator[Kube]:
    """A namespace for the module; it goes at the end, which nobody waits for."""
    kube = Kube(request.path.stem.replace("test_", "torpor-").replace("_", "-"))
    kube.kubectl("delete", "namespace", kube.namespace, "--ignore-not-found", "--timeout=120s")
    kube.kubectl("create", "namespace", kube.namespace)
    yield kube
    # A namespace waits for half of its pods' grace, however early they end: so they end before.
    kube.try_kubectl("delete", "infd", "--all", "--timeout=60s")
    kube.try_kubectl("wait", "pods", "-l", CHILDREN, "--for=delete", "--timeout=60s")
    kube.kubectl("delete", "namespace", kube.namespace, "--wait=false")


@pytest.fixture(scope="module")
def kube(space: Kube, images: dict[str, str]) -> Kube:
    """The module's namespace, with a client pod in it."""
    space.apply(client_pod(images["runtime"]))
    space.kubectl("wait", "pod", CLIENT, "--for=condition=Ready", "--timeout=300s", timeout=330)
    return space
