"""A pod object becomes a view with at most one thing that is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from operator_builders import SETTINGS, deployment
from torpor_operator import manifests
from torpor_operator.model import Manifest
from torpor_operator.pods import view_pod

LOG = """2026-01-31 12:00:00,123 INFO loading
torpor: There is no model folder /model/x.
        Give a folder with config.json.
"""


def pod(
    status: Manifest, *, role: str = "worker", spec: Manifest | None = None, **metadata: Any
) -> Manifest:
    of = deployment(**(spec or {}))
    if role == "engine":
        made = manifests.engine_pod(of, 0, SETTINGS)
    else:
        made = manifests.worker_pod(of, 0, 1, SETTINGS)
    made["metadata"] |= {"uid": "u1", "creationTimestamp": "2026-01-31T12:00:00Z", **metadata}
    return made | {"status": status}


def container(role: str = "worker", *, ready: bool = False, **states: Any) -> Manifest:
    return {
        "phase": "Pending",
        "containerStatuses": [{"name": role, "ready": ready, "restartCount": 2, **states}],
    }


def waiting(reason: str, words: str = "", /, **last: Any) -> Manifest:
    state = {"waiting": {"reason": reason, "message": words}}
    return container(state=state, **({"lastState": {"terminated": last}} if last else {}))


def unschedulable(message: str) -> Manifest:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return {"phase": "Pending", "conditions": [condition | {"message": message}]}


@dataclass(frozen=True)
class Case:
    given: Manifest
    then: str
    told: str = ""
    spec: Manifest = field(default_factory=dict)
    warning: tuple[str, str] | None = None


GPU = {"worker": {"accelerator": "nvidia.com/gpu", "ranksPerPod": 1}}
OCI = {"model": {"source": "oci://registry.example.com/smollm2:1"}}
NO_CLAIM = '0/2 nodes are available: persistentvolumeclaim "models" not found.'
MODEL_PULL = "failed to pull registry.example.com/smollm2:1: not found"
CASES = {
    "nothing yet": Case({"phase": "Pending"}, "", "being created"),
    "running": Case(container(ready=True, state={"running": {}}), ""),
    "a GPU is missing": Case(
        unschedulable("0/2 nodes are available: 2 Insufficient nvidia.com/gpu."),
        "InsufficientGPU",
        "nodes with nvidia.com/gpu",
        GPU,
    ),
    "a GPU pod lacks CPU": Case(unschedulable("2 Insufficient cpu."), "Unschedulable", "", GPU),
    "no node fits": Case(unschedulable("2 Insufficient memory."), "Unschedulable", "ask for less"),
    "no claim": Case(unschedulable(NO_CLAIM), "VolumeNotFound", "Create the claim"),
    "no claim for a GPU pod": Case(unschedulable(NO_CLAIM), "VolumeNotFound", "", GPU),
    "no image": Case(
        waiting("ErrImagePull", 'failed to resolve "runtime:1": not found'),
        "ImagePullFailed",
        "runtime:1 cannot be pulled (it is not there)",
    ),
    "no right to an image": Case(
        waiting("ImagePullBackOff", "401 Unauthorized"), "ImagePullFailed", "access is denied"
    ),
    "no model image": Case(
        waiting("ErrImagePull", MODEL_PULL), "ModelNotFound", "spec.model.source", OCI
    ),
    "no Secret for a variable": Case(
        waiting("CreateContainerConfigError", 'secret "proxy" not found'),
        "InvalidSpec",
        'secret "proxy" not found. Create it, or correct spec.worker.env.',
    ),
    "a container of a wrong form": Case(
        waiting("CreateContainerConfigError", "image will run as root"), "InvalidSpec", "as root."
    ),
    "no volume": Case(
        waiting("ContainerCreating"),
        "VolumeNotFound",
        "timed out",
        warning=("FailedMount", "timed out waiting"),
    ),
    "no Secret for a volume": Case(
        waiting("ContainerCreating"),
        "VolumeNotFound",
        'secret "ca" not found. Create what is missing, or correct its name.',
        warning=("FailedMount", 'secret "ca" not found'),
    ),
    "another warning": Case(
        waiting("ContainerCreating"), "", "being created", warning=("BackOff", "slow")
    ),
    "no model": Case(
        waiting("CrashLoopBackOff", exitCode=3, message=LOG),
        "ModelNotFound",
        "There is no model folder /model/x. Give a folder with config.json.",
    ),
    "a damaged model": Case(
        waiting("CrashLoopBackOff", exitCode=3, message="torpor: It is damaged."), "WeightsCorrupt"
    ),
    "wrong settings": Case(waiting("CrashLoopBackOff", exitCode=2), "InvalidSpec"),
    "no room for the cache": Case(
        waiting("CrashLoopBackOff", exitCode=5, message="torpor: The KV cache does not fit."),
        "KVCacheDoesNotFit",
    ),
    "no memory": Case(waiting("CrashLoopBackOff", exitCode=5), "OutOfMemory"),
    "killed for memory": Case(
        container(state={"terminated": {"exitCode": 137, "reason": "OOMKilled"}}),
        "OutOfMemory",
        "spec.worker.resources",
    ),
    "lost too often": Case(waiting("CrashLoopBackOff", exitCode=7), "RankLost"),
    "crashed": Case(waiting("CrashLoopBackOff", exitCode=1, message="boom"), "CrashLoop", "boom"),
    "between two crashes": Case(
        container(state={"running": {}}, lastState={"terminated": {"exitCode": 3, "message": LOG}}),
        "ModelNotFound",
    ),
    "between two crashes of unknown cause": Case(
        container(state={"running": {}}, lastState={"terminated": {"exitCode": 1}}), "CrashLoop"
    ),
    "after one crash of unknown cause": Case(
        container(state={"running": {}}, lastState={"terminated": {"exitCode": 1}}, restartCount=1),
        "",
    ),
    "ended without being asked to, and started": Case(
        container(state={"running": {}}, lastState={"terminated": {"exitCode": 0}}), ""
    ),
    "well again": Case(
        container(ready=True, state={"running": {}}, lastState={"terminated": {"exitCode": 3}}),
        "",
    ),
    "evicted": Case(
        {"phase": "Failed", "reason": "Evicted", "message": "low on memory"},
        "PodLost",
        "gone (Evicted). low on memory.",
    ),
    "node lost": Case({"phase": "Unknown", "reason": "NodeLost"}, "PodLost", "NodeLost"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_wrong_with_a_pod(case: Case) -> None:
    seen = view_pod(pod(case.given, spec=case.spec), case.warning)
    assert seen.reason == case.then
    assert case.told in seen.message


def test_what_preemption_would_have_done_is_left_out() -> None:
    words = (
        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. no new claims to deallocate, "
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )
    told = view_pod(pod(unschedulable(words), spec=GPU)).message
    assert told.endswith("1 Insufficient nvidia.com/gpu. Free or add nodes with nvidia.com/gpu.")


def test_the_message_of_a_failing_pull_does_not_change_between_attempts() -> None:
    cause = 'rpc error: failed to resolve reference "runtime:1": runtime:1: not found'
    failed = view_pod(pod(waiting("ErrImagePull", cause)))
    backing = f'Back-off pulling image "runtime:1": ErrImagePull: {cause}'
    assert view_pod(pod(waiting("ImagePullBackOff", backing))) == failed


def test_the_message_of_a_crash_does_not_hold_its_time() -> None:
    first, second = (
        view_pod(
            pod(
                waiting(
                    "CrashLoopBackOff",
                    exitCode=1,
                    message=f"2026-01-31 12:00:0{second},000 ERROR core: it broke",
                )
            )
        )
        for second in (1, 2)
    )
    assert first.message == second.message


def test_labels_and_times_of_a_worker() -> None:
    running = container(ready=True, state={"running": {"startedAt": "2026-01-31T12:00:10Z"}})
    seen = view_pod(pod(running | {"phase": "Running", "podIP": "10.0.0.1"}))
    assert (seen.name, seen.role, seen.replica, seen.worker) == ("demo-0-worker-1", "worker", 0, 1)
    assert seen.revision == deployment().revision
    assert (seen.phase, seen.ready, seen.ip, seen.restarts) == ("Running", True, "10.0.0.1", 2)
    assert seen.started_at - seen.created_at == 10.0


def test_an_engine_has_no_worker_index() -> None:
    seen = view_pod(pod(container("engine", ready=True, state={"running": {}}), role="engine"))
    assert (seen.role, seen.worker, seen.ready) == ("engine", -1, True)


def test_a_deleting_pod_is_neither_ready_nor_in_trouble() -> None:
    broken = waiting("CrashLoopBackOff", exitCode=3)
    seen = view_pod(pod(broken, deletionTimestamp="2026-01-31T12:01:00Z"))
    assert (seen.deleting, seen.ready, seen.reason) == (True, False, "")
    assert seen.ends_at - seen.created_at == 60.0


@pytest.mark.parametrize("label", ["x", "-1", "²", ""])
def test_labels_without_sense_belong_to_no_replica(label: str) -> None:
    odd = pod({"phase": "Running"})
    odd["metadata"]["labels"]["torpor.dev/replica"] = label
    assert view_pod(odd).replica == -1


@pytest.mark.parametrize("role", ["engine", "worker"])
def test_a_pod_without_a_role_belongs_to_no_replica(role: str) -> None:
    odd = pod({"phase": "Running"}, role=role)
    assert view_pod(odd).replica == 0
    del odd["metadata"]["labels"]["torpor.dev/role"]
    assert view_pod(odd).replica == -1
