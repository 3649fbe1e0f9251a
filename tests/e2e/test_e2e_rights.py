"""The operator has the rights that it uses and uses those that it has: read from the audit log of
the whole run, hence the last module."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from audit_log import AuditLog, Entry
from cluster_kit import RELEASE, SYSTEM
from infd import broken_infd
from kube import Kube, Object, wait_for
from operator_control import OperatorControl

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600, func_only=True)]
RUNS_LAST = True

LEASE = "torpor-operator"
LINGERS = timedelta(seconds=15)
# API group, resource with its subresource, verb.
Right = tuple[str, str, str]


@pytest.fixture(scope="module")
def requests(
    kube: Kube,
    control: OperatorControl,
    audit: AuditLog,
    first_moment: str,
    images: dict[str, str],
) -> list[Entry]:
    """Of the operator in the whole run. At its end a bit of everything happens once more, so that
    this module may also be run alone."""
    audit.need()
    control.stop()
    control.kube.kubectl("delete", "lease", LEASE, "--ignore-not-found")
    control.start()
    control.restart()  # now there is a Lease, and it is taken up
    kube.apply(broken_infd("short", images["model"], replicas=2, standby={"maxReplicas": 0}))
    wait_for(lambda: len(kube.pods("short")) == 4, 60, lambda: "the pods are not made")
    kube.scale("short", 1)
    wait_for(lambda: len(kube.pods("short")) == 2, 90, lambda: "the pods do not go")
    kube.kubectl("delete", "infd", "short", "--timeout=60s")
    return audit.of(control.user, first_moment)


def test_nothing_was_denied(requests: list[Entry], audit: AuditLog) -> None:
    """But for an operator that is being uninstalled, whose rights may go before it does."""
    losses = audit.losses_of_rights(RELEASE)
    print(f"{len(requests)} requests of the operator in the run")
    denied = [entry for entry in requests if entry.denied]
    assert not [str(entry) for entry in denied if not _soon_after(entry, losses)]


def _soon_after(entry: Entry, losses: list[datetime]) -> bool:
    at = datetime.fromisoformat(entry.at)
    return any(timedelta(0) <= at - loss < LINGERS for loss in losses)


def test_every_right_was_used(requests: list[Entry], control: OperatorControl) -> None:
    given = set(_given(control))
    used = {right for entry in requests for right in _used(entry)}
    print(f"{len(given)} rights, {len(given - used)} of them unused")
    assert given, "no role is bound to the operator"
    assert not given - used
    assert not used - given  # or another role than the chart's was found


def _used(entry: Entry) -> Iterator[Right]:
    """A patch by server-side apply that makes the object needs the right to create, too."""
    yield entry.group, entry.resource, entry.verb
    if entry.verb == "patch" and entry.code == 201:
        yield entry.group, entry.resource, "create"


def _given(control: OperatorControl) -> Iterator[Right]:
    """All that the roles bound to the operator's account allow, as they are in the cluster."""
    for role in _roles(control):
        for rule in role["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    yield from ((group, resource, verb) for verb in rule["verbs"])


def _roles(control: OperatorControl) -> list[Object]:
    account = control.user.rpartition(":")[2]
    everywhere = ("get", "rolebindings,clusterrolebindings", "--all-namespaces", "-o", "json")
    found = []
    for binding in json.loads(control.kube.kubectl(*everywhere))["items"]:
        subjects = binding.get("subjects", [])
        ours = {"kind": "ServiceAccount", "name": account, "namespace": SYSTEM}
        if any(ours.items() <= subject.items() for subject in subjects):
            namespace = binding["metadata"].get("namespace", SYSTEM)
            role = binding["roleRef"]
            found.append(Kube(namespace).get(role["kind"], role["name"]))
    return found
