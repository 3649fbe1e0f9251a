"""A real cluster with the operator on it, as `scripts/cluster.sh up` and `images` left it.

Run by `make test-e2e`, which names the images in the environment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from cluster_kit import CLIENT, client_pod
from helm_chart import install_operator
from infd import SYSTEM
from kube import Kube

# Asked once: the environment of each test holds nothing of the user's.
IMAGES = {
    name: os.environ.get(f"TORPOR_E2E_{name.upper()}_IMAGE", "")
    for name in ("operator", "runtime", "model")
}


@pytest.fixture(scope="session")
def images() -> dict[str, str]:
    missing = [name for name, image in IMAGES.items() if not image]
    if missing:
        pytest.fail(f"No image of {', '.join(missing)} is named; run make test-e2e.", pytrace=False)
    return IMAGES


@pytest.fixture(scope="session")
def operator(images: dict[str, str]) -> Kube:
    """The chart, installed; gives the operator's namespace."""
    install_operator(images)
    return Kube(SYSTEM)


@pytest.fixture(scope="module")
def space(operator: Kube, request: pytest.FixtureRequest) -> Iterator[Kube]:
    """A namespace for the module; it goes at the end."""
    kube = Kube(request.path.stem.removeprefix("test_").replace("_", "-"))
    kube.kubectl("delete", "namespace", kube.namespace, "--ignore-not-found", "--timeout=120s")
    kube.kubectl("create", "namespace", kube.namespace)
    yield kube
    kube.kubectl("delete", "namespace", kube.namespace, "--timeout=120s", timeout=150)


@pytest.fixture(scope="module")
def kube(space: Kube, images: dict[str, str]) -> Kube:
    """The module's namespace, with a client pod in it."""
    space.apply(client_pod(images["runtime"]))
    space.kubectl("wait", "pod", CLIENT, "--for=condition=Ready", "--timeout=300s", timeout=330)
    return space
