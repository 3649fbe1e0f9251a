"""What belongs to somebody else is never touched, though it has the name of a child."""

from __future__ import annotations

import json
import time

import pytest

from children import children
from infd import broken_infd
from kube import Kube, Object, wait_for
from operator_control import OperatorControl

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600, func_only=True)]

SELECTOR = {"app": "foreign"}
# Whatever it is, it looks like ours by its labels.
LABELS = SELECTOR | {
    "app.kubernetes.io/managed-by": "torpor-operator",
    "torpor.dev/deployment": "wanted",
    "torpor.dev/role": "engine",
    "torpor.dev/replica": "0",
}
SERVICE = {"selector": SELECTOR, "ports": [{"port": 80}]}
POLICY = {"podSelector": {"matchLabels": SELECTOR}}
BUDGET = {"selector": {"matchLabels": SELECTOR}, "maxUnavailable": 1}
CONTAINER = {"name": "main", "image": "registry.invalid/foreign"}
POD = {"containers": [CONTAINER], "nodeSelector": {"no": "such-node"}}


def foreign(api: str, kind: str, name: str, labels: dict[str, str], spec: Object) -> Object:
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **spec}


def all_foreign(labels: dict[str, str]) -> list[Object]:
    """One for each child that there is once per deployment but the Secret, and a pod."""
    return [
        foreign("v1", "Service", "wanted", labels, {"spec": SERVICE}),
        foreign("v1", "Service", "wanted-pods", labels, {"spec": SERVICE}),
        foreign("networking.k8s.io/v1", "NetworkPolicy", "wanted-engine", labels, {"spec": POLICY}),
        foreign(
            "networking.k8s.io/v1", "NetworkPolicy", "wanted-workers", labels, {"spec": POLICY}
        ),
        foreign("policy/v1", "PodDisruptionBudget", "wanted", labels, {"spec": BUDGET}),
        foreign("v1", "Pod", "wanted-0-engine", labels, {"spec": POD}),
    ]


def key_of(each: Object) -> str:
    return f"{each['kind']}/{each['metadata']['name']}"


def untouched(kube: Kube, objects: list[Object]) -> dict[str, Object]:
    """All that somebody could have written, and who wrote it; but for the status."""
    places = [key_of(each) for each in objects]
    text = kube.kubectl("get", *places, "-o", "json", "--show-managed-fields")
    answer = json.loads(text)
    live = answer.get("items", [answer])
    for each in live:
        del each["metadata"]["resourceVersion"]
        managers = each["metadata"].pop("managedFields", [])
        each["managers"] = [who for who in managers if who.get("subresource") != "status"]
        each.pop("status", None)
    return {key_of(each): each for each in live}


@pytest.mark.parametrize("labels", [SELECTOR, LABELS], ids=["foreign labels", "our labels"])
def test_foreign_objects_stay_as_they_are(
    kube: Kube, control: OperatorControl, images: dict[str, str], labels: dict[str, str]
) -> None:
    objects = all_foreign(labels)
    kube.apply(*objects)
    wait_for(
        lambda: kube.get("pod", "wanted-0-engine")["status"].get("conditions"),
        30,
        lambda: "the scheduler has not looked at the pod",
    )
    before = untouched(kube, objects)
    kube.apply(broken_infd("wanted", images["model"]))
    kube.wait_reason("wanted", "NameTaken", 30, "ResourcesCreated")
    told = kube.condition("wanted", "ResourcesCreated")
    assert told["status"] == "False"
    assert kube.condition("wanted")["reason"] == "NameTaken"
    uid = kube.get("infd", "wanted")["metadata"]["uid"]
    print(f"told: {told['message']}")
    assert told["message"].split()[0] in before
    time.sleep(3)  # more looks
    assert untouched(kube, objects) == before
    for each in objects:
        kube.kubectl("delete", each["kind"], each["metadata"]["name"], "--now")
    kube.wait_reason("wanted", "Created", 30, "ResourcesCreated")
    assert set(map(key_of, children(kube, uid))) >= set(before)
    kube.kubectl("delete", "infd", "wanted", "--timeout=60s")
    wait_for(lambda: not children(kube, uid), 60, lambda: "children are left")


def test_a_foreign_secret_stays_as_it_is(
    kube: Kube, control: OperatorControl, images: dict[str, str]
) -> None:
    """No pod is made that would mount it. The operator may not list Secrets, and looks at this
    one again after two minutes; a restart shows the healing sooner."""
    secret = foreign("v1", "Secret", "secretive-keys", SELECTOR, {"stringData": {"a": "b"}})

    kube.apply(secret)
    before = untouched(kube, [secret])
    kube.apply(broken_infd("secretive", images["model"]))
    kube.wait_reason("secretive", "NameTaken", 30, "ResourcesCreated")
    assert untouched(kube, [secret]) == before
    assert not kube.pods("secretive")
    kube.kubectl("delete", "secret", "secretive-keys")
    control.restart()
    kube.wait_reason("secretive", "Created", 60, "ResourcesCreated")
    assert kube.pods("secretive")
    kube.kubectl("delete", "infd", "secretive", "--timeout=60s")
