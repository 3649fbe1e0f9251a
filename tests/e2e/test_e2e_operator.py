"""What the operator does by itself: nothing while idle, and back to what is wanted after drift."""

from __future__ import annotations

import json
import time

import pytest

from audit_log import AuditLog
from children import own_labels
from infd import broken_infd, infd
from kube import Kube, Object, wait_for
from operator_control import OperatorControl

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900, func_only=True)]


@pytest.fixture(scope="module")
def trio(kube: Kube, control: OperatorControl, images: dict[str, str]) -> Kube:
    """Three deployments, settled: one awake, one asleep, one whose model does not exist."""
    kube.apply(
        infd("awake", images["model"]),
        infd("asleep", images["model"]),
        broken_infd("broken", images["model"]),
    )
    kube.wait_ready("asleep")
    kube.scale("asleep", 0)
    kube.wait_reason("asleep", "Asleep", 120)
    kube.wait_ready("awake")
    kube.wait_reason("broken", "ModelNotFound", 60)
    return kube


@pytest.mark.parametrize("seconds", [25, pytest.param(120, marks=pytest.mark.slow)])
def test_no_write_while_idle(
    trio: Kube, control: OperatorControl, audit: AuditLog, seconds: int
) -> None:
    audit.need()
    time.sleep(10)  # one more look at everything
    since = audit.mark(trio)
    time.sleep(seconds)
    requests = audit.of(control.user, since)
    written = [str(entry) for entry in requests if entry.writes or entry.looks]
    print(f"idle for {seconds} s: {len(requests)} requests, {len(written)} of them writes")
    assert requests, "the audit log does not show the operator at all"
    assert not written
    reasons = {name: trio.condition(name)["reason"] for name in ("awake", "asleep", "broken")}
    assert reasons == {"awake": "Ready", "asleep": "Asleep", "broken": "ModelNotFound"}


TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"


@pytest.mark.parametrize("role", ["engine", "worker"])
def test_pods_have_no_token(trio: Kube, role: str) -> None:
    [pod] = trio.pods("awake", role)
    spec = pod["spec"]
    assert spec["automountServiceAccountToken"] is False
    sources = [
        source
        for volume in spec["volumes"]
        for source in volume.get("projected", {"sources": []})["sources"]
    ]
    assert not [source for source in sources if "serviceAccountToken" in source]
    look = f"import os; print(os.path.exists({TOKEN!r}), os.path.exists('/tmp'))"
    seen = trio.kubectl("exec", pod["metadata"]["name"], "--", "python", "-c", look)
    assert seen.split() == ["False", "True"]


def test_its_image_has_no_torch(control: OperatorControl) -> None:
    name = control.deployment["metadata"]["name"]
    look = "import importlib.util as i; print(*map(bool, map(i.find_spec, ('kopf', 'torch'))))"
    found = control.kube.kubectl("exec", f"deployment/{name}", "--", "python", "-c", look)
    assert found.split() == ["True", "False"]


def test_events_tell_each_transition_once(trio: Kube, control: OperatorControl) -> None:
    before = event_names(trio, "awake")
    trio.scale("awake", 0)
    trio.wait_reason("awake", "Asleep", 120)
    trio.scale("awake", 1)
    trio.wait_reason("awake", "Ready", 120)
    control.restart()
    time.sleep(12)  # looked at again, by an operator that remembers nothing
    new = {name: told for name, told in event_names(trio, "awake").items() if name not in before}
    reasons = [event["reason"] for event in new.values()]
    print(f"events of a sleep and a wake: {reasons}")
    assert len(reasons) == len(set(reasons))
    assert {"Asleep", "Ready"} <= set(reasons)
    assert all(event["count"] == 1 for event in new.values())


def event_names(kube: Kube, deployment: str) -> dict[str, Object]:
    """Events about a deployment, oldest first."""
    uid = kube.get("infd", deployment)["metadata"]["uid"]
    about = ("get", "events", f"--field-selector=involvedObject.uid={uid}", "-o", "json")
    events = json.loads(kube.kubectl(*about))["items"]
    events.sort(key=lambda event: event["metadata"]["creationTimestamp"])
    return {event["metadata"]["name"]: event for event in events}


CHILDREN = (
    "Service/awake",
    "Service/awake-pods",
    "NetworkPolicy/awake-engine",
    "NetworkPolicy/awake-workers",
    "PodDisruptionBudget/awake",
)
OPEN = '{"spec": {"ingress": [{}]}}'
CHANGES = (
    ("Service/awake", '{"spec": {"selector": {"app": "stolen"}}}'),
    ("Service/awake-pods", '{"spec": {"publishNotReadyAddresses": false}}'),
    ("NetworkPolicy/awake-engine", OPEN),
    ("NetworkPolicy/awake-workers", OPEN),
    ("PodDisruptionBudget/awake", '{"spec": {"minAvailable": 1}}'),
)
UNLABELLED = json.dumps(
    {"metadata": {"labels": {"app.kubernetes.io/managed-by": None, "torpor.dev/deployment": None}}}
)


def wanted_fields(kube: Kube, key: str) -> Object:
    kind, name = key.split("/")
    live = kube.get(kind, name)
    metadata = live["metadata"]
    return {"spec": live["spec"], "labels": metadata["labels"], "of": metadata["ownerReferences"]}


def wait_restored(kube: Kube, key: str, wanted: Object) -> None:
    kind, name = key.split("/")
    wait_for(
        lambda: kube.exists(kind, name) and wanted_fields(kube, key) == wanted,
        30,
        lambda: f"{key} is {kube.kubectl('get', kind, name, '-o', 'json', check=False)}",
    )


@pytest.mark.parametrize("key", CHILDREN)
def test_a_deleted_child_comes_back(trio: Kube, key: str) -> None:
    kind, name = key.split("/")
    wanted = wanted_fields(trio, key)
    for given in ("clusterIP", "clusterIPs"):
        if wanted["spec"].get(given) not in ("None", ["None"]):
            wanted["spec"].pop(given, None)
    trio.kubectl("delete", kind, name)
    wait_for(lambda: trio.exists(kind, name), 30, lambda: f"{key} does not come back")
    found = wanted_fields(trio, key)
    assert found["spec"].items() >= wanted["spec"].items()
    assert (found["labels"], found["of"]) == (wanted["labels"], wanted["of"])


@pytest.mark.slow
@pytest.mark.parametrize(("key", "patch"), CHANGES)
def test_a_changed_child_is_put_right(trio: Kube, key: str, patch: str) -> None:
    kind, name = key.split("/")
    wanted = wanted_fields(trio, key)
    trio.kubectl("patch", kind, name, "--type=merge", "-p", patch)
    wait_restored(trio, key, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("key", CHILDREN)
def test_labels_that_were_taken_away_come_back(trio: Kube, key: str) -> None:
    kind, name = key.split("/")
    wanted = wanted_fields(trio, key)
    trio.kubectl("patch", kind, name, "--type=merge", "-p", UNLABELLED)
    wait_restored(trio, key, wanted)


@pytest.mark.slow
@pytest.mark.parametrize(
    "label", ["torpor.dev/deployment", "torpor.dev/role", "torpor.dev/replica"]
)
def test_a_pod_that_lost_a_label_is_replaced(trio: Kube, label: str) -> None:
    """Nothing selects it any more, and its name is taken until it goes."""
    [pod] = trio.pods("broken", "worker")
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    trio.kubectl("label", "pod", name, f"{label}-")
    wait_for(
        lambda: trio.uids("broken", "worker").get(name, uid) != uid,
        60,
        lambda: f"{name} stays: {trio.get('pod', name)['metadata']['labels']}",
    )
    [made] = trio.pods("broken", "worker")
    assert own_labels(made) == own_labels(pod)


def test_the_secret_is_back_before_pods_need_it(trio: Kube) -> None:
    before = trio.get("secret", "broken-keys")
    trio.kubectl("delete", "secret", "broken-keys")
    trio.kubectl("delete", "pod", "broken-0-worker-0", "--now")
    wait_for(lambda: trio.exists("secret", "broken-keys"), 30, lambda: "it does not come back")
    after = trio.get("secret", "broken-keys")
    assert after["data"] == before["data"]
    assert after["metadata"]["ownerReferences"] == before["metadata"]["ownerReferences"]


def test_changed_keys_are_put_right_when_a_container_starts(trio: Kube) -> None:
    """The operator may not watch Secrets; a container that ends lets it look."""
    before = trio.get("secret", "awake-keys")["data"]
    worker = trio.pods("awake", "worker")[0]["metadata"]["name"]
    changed = '{"data": {"worker-0-0.json": "e30=", "added": "e30="}}'
    trio.kubectl("patch", "secret", "awake-keys", "--type=merge", "-p", changed)
    end = "import os, signal; os.kill(1, signal.SIGTERM)"
    trio.kubectl("exec", worker, "--", "python", "-c", end)
    wait_for(
        lambda: before.items() <= trio.get("secret", "awake-keys")["data"].items(),
        60,
        lambda: f"the keys stay as they were put: {list(trio.get('secret', 'awake-keys')['data'])}",
    )
    trio.wait_ready("awake", 240)
