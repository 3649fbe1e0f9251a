"""A real cluster with the operator on it, as `scripts/cluster.sh up` and `images` left it.

Run by `make test-e2e`, which names the images in the environment.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from audit_log import AuditLog
from cluster_kit import CLIENT, client_pod, image_values
from infd import SYSTEM
from kube import Kube
from operator_control import OperatorControl

ROOT = Path(__file__).resolve().parents[2]
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


def helm(*arguments: str) -> str:
    done = subprocess.run(
        ["helm", *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"helm {' '.join(arguments)}: {done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def audit() -> AuditLog:
    """Of the cluster; may be none (``AuditLog.need``)."""
    return AuditLog(AUDIT_LOG)


@pytest.fixture(scope="session")
def first_moment(audit: AuditLog) -> str:
    """Of the run, before the operator is installed; in the audit log's form."""
    return audit.mark(Kube("default"))


@pytest.fixture(scope="session")
def operator(images: dict[str, str], first_moment: str) -> Iterator[Kube]:
    """The chart, installed; gives the operator's namespace."""
    chart = str(ROOT / "charts" / "torpor")
    helm(
        "upgrade",
        "--install",
        "torpor",
        chart,
        "--namespace",
        SYSTEM,
        "--create-namespace",
        "--wait",
        "--timeout",
        "180s",
        *image_values(images["operator"], images["runtime"]),
    )
    yield Kube(SYSTEM)


@pytest.fixture(scope="module")
def control(operator: Kube) -> Iterator[OperatorControl]:
    """The operator, which logs nothing worse than INFO in the module's time."""
    control = OperatorControl()
    control.restart()  # what it logged before is not the module's to judge
    control.logs = ""
    yield control
    assert not control.complaints()


@pytest.fixture(scope="module")
def kube(operator: Kube, images: dict[str, str], request: pytest.FixtureRequest) -> Iterator[Kube]:
    """A namespace for the module, with a client pod in it; it goes at the end."""
    name = request.path.stem.removeprefix("test_").replace("_", "-")
    kube = Kube(name)
    kube.kubectl("delete", "namespace", kube.namespace, "--ignore-not-found", "--timeout=120s")
    kube.kubectl("create", "namespace", kube.namespace)
    kube.apply(client_pod(images["runtime"]))
    kube.kubectl("wait", "pod", CLIENT, "--for=condition=Ready", "--timeout=300s", timeout=330)
    yield kube
    # A namespace waits for half of its pods' grace, however early they end: so they end before.
    kube.try_kubectl("delete", "infd", "--all", "--timeout=60s")
    kube.try_kubectl("wait", "pods", "-l", CHILDREN, "--for=delete", "--timeout=60s")
    kube.kubectl("delete", "namespace", kube.namespace, "--timeout=120s", timeout=150)
