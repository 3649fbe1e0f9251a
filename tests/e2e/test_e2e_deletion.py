"""Deletion needs no operator: owners and the garbage collector do it, and no finalizer waits."""

from __future__ import annotations

import time

import pytest

from audit_log import AuditLog
from children import children, identities
from infd import broken_infd, infd
from kube import Kube, wait_for
from operator_control import OperatorControl

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600, func_only=True)]

NAMESPACE_SECONDS = 60
OTHER = "torpor-e2e-deletion-other"


def uid_of(kube: Kube, name: str) -> str:
    return str(kube.get("infd", name)["metadata"]["uid"])


@pytest.fixture(scope="module")
def staying(kube: Kube, control: OperatorControl, images: dict[str, str]) -> str:
    kube.apply(infd("staying", images["model"]))
    kube.wait_ready("staying")
    return "staying"


def of_staying(kube: Kube) -> tuple[str, dict[str, tuple[str, str]]]:
    """Whatever is written to it or to a child of it changes this."""
    metadata = kube.get("infd", "staying")["metadata"]
    return metadata["resourceVersion"], identities(kube, metadata["uid"])


@pytest.fixture
def other(control: OperatorControl) -> Kube:
    other = Kube(OTHER)
    other.kubectl("delete", "namespace", OTHER, "--ignore-not-found", "--timeout=120s")
    other.kubectl("create", "namespace", OTHER)
    return other


def test_deletion_without_the_operator(
    kube: Kube,
    other: Kube,
    staying: str,
    control: OperatorControl,
    audit: AuditLog,
    images: dict[str, str],
) -> None:
    """A deployment is deleted, and a namespace with one that runs; another that runs stays. Then
    the operator comes back."""
    kube.apply(broken_infd("going", images["model"], replicas=2))
    other.apply(infd("inside", images["model"]))
    kube.wait_reason("going", "ModelNotFound", 60)
    other.wait_ready("inside")
    kept = of_staying(kube)
    with control.stopped():
        _delete_resource(kube)
        _delete_namespace(other)
        assert of_staying(kube) == kept
        since = audit.mark(kube)
    time.sleep(15)  # a look at everything, and one more
    assert of_staying(kube) == kept
    if audit.named:
        written = [entry for entry in audit.of(control.user, since) if entry.writes]
        assert {entry.resource for entry in written} <= {"leases"}, list(map(str, written))


def _delete_resource(kube: Kube) -> None:
    uid = uid_of(kube, "going")
    kinds = {each["kind"] for each in children(kube, uid)}
    assert kinds == {"Pod", "Service", "Secret", "NetworkPolicy", "PodDisruptionBudget"}
    started = time.monotonic()
    kube.kubectl("delete", "infd", "going", "--timeout=60s")
    told = time.monotonic() - started
    wait_for(lambda: not children(kube, uid), 60, lambda: f"left: {list(identities(kube, uid))}")
    print(
        f"no operator: delete returns after {told:.1f} s, last child gone after "
        f"{time.monotonic() - started:.1f} s"
    )


def _delete_namespace(other: Kube) -> None:
    started = time.monotonic()
    other.kubectl("delete", "namespace", OTHER, f"--timeout={NAMESPACE_SECONDS}s")
    print(f"no operator: namespace gone after {time.monotonic() - started:.1f} s")


def test_a_namespace_ends_with_the_operator_at_work(
    other: Kube, control: OperatorControl, images: dict[str, str]
) -> None:
    other.apply(broken_infd("inside", images["model"], replicas=2))
    other.wait_reason("inside", "ModelNotFound", 60)
    _delete_namespace(other)
