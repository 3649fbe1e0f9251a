"""The kubernetes executor over real supervisors, each as it runs in a worker pod."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from torpor_engine.executor import grouped
from torpor_engine.executor.kubernetes import (
    FIRST_PORT,
    PORTS,
    KubernetesExecutor,
    expected_pods,
    store_port,
)
from torpor_protocol.errors import GroupLost
from torpor_protocol.rpc import new_group_id
from torpor_protocol.transport import CurveKeys
from worker_pods import REVISION, Waited, WorkerPods, loss_of

PATIENCE = 60.0


class Watch:
    """``while_waiting`` of an executor: gives up when ``seen`` holds, and never waits for ever."""

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self.executor: KubernetesExecutor | None = None
        self.enough = ""

    def __call__(self) -> None:
        assert self.executor is not None
        self.sentences.append(self.executor.waiting_for)
        refused = self.executor.wire_rejected()
        if self.enough in refused:
            raise Waited
        assert len(self.sentences) < PATIENCE / 0.01, f"{self.sentences[-1]} {refused}"


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[WorkerPods]:
    made = WorkerPods(tmp_path)
    yield made
    made.close()
    assert psutil.Process().children(recursive=True) == []


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def executor(pods: WorkerPods, watch: Watch) -> Iterator[KubernetesExecutor]:
    made = watch.executor = pods.executor(watch)
    yield made
    made.shutdown()


def test_pods_come_one_after_the_other_and_survive_each_other(
    pods: WorkerPods, watch: Watch, executor: KubernetesExecutor
) -> None:
    pods.start(1)
    watch.enough = "nothing"
    pods.start(0)
    executor.form()
    assert executor.waiting_for == ""
    assert executor.collective_rpc("add", args=(1,)) == [2, 2]
    ranks = {state.rank: state.pid for state in executor.rank_states()}
    for rank, pid in ranks.items():
        ancestors = {parent.pid for parent in psutil.Process(pid).parents()}
        assert pods.processes[rank].pid in ancestors, "rank j is in pod j"
    (described, _) = executor.collective_rpc("describe")
    assert described["interface"] == "lo"
    old = executor.group

    pods.kill(1)
    loss = loss_of(executor)
    assert loss.reason == "PodLost" and "demo-1-worker-1" in loss.cause
    executor.disband()
    assert psutil.pid_exists(pods.processes[0].pid)
    assert not psutil.pid_exists(ranks[0]), "the ranks of the pod that lives ended, too"

    pods.start(1)
    watch.sentences.clear()
    executor.form()
    assert any("demo-1-worker-1" in sentence for sentence in watch.sentences)
    assert not any("worker-0" in sentence for sentence in watch.sentences)
    assert executor.group != old
    assert executor.collective_rpc("add", args=(1,)) == [2, 2]


def test_a_pod_that_started_anew_has_lost_its_ranks(
    pods: WorkerPods, executor: KubernetesExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told by its hello alone: here neither its silence nor its connection's end is looked at."""
    monkeypatch.setattr(grouped, "SUPERVISOR_SILENCE", float("inf"))
    for worker in (0, 1):
        pods.start(worker)
    executor.form()
    executor.check_supervisors = lambda: None  # type: ignore[method-assign]
    pods.kill(0)
    pods.start(0)
    loss = loss_of(executor)
    assert (loss.reason, loss.external) == ("PodLost", False)
    assert "demo-1-worker-0 has started anew" in loss.cause


def test_an_engine_that_starts_anew_takes_the_pods_that_are_there(pods: WorkerPods) -> None:
    first = pods.executor()
    for worker in (0, 1):
        pods.start(worker)
    first.form()
    old = {state.pid for state in first.rank_states()}
    first._router.close()  # as if its process had been killed: nobody is told

    second = pods.executor()
    second.form()
    assert second.collective_rpc("add", args=(1,)) == [2, 2]
    assert not any(map(psutil.pid_exists, old))
    assert all(process.poll() is None for process in pods.processes.values())
    second.shutdown()
    time.sleep(0.1)
    assert all(process.poll() is None for process in pods.processes.values()), "pods stay"


@pytest.mark.parametrize(
    ("changes", "reason", "objection"),
    [
        ({"TORPOR_DEPLOYMENT_UID": "another"}, "wrong_deployment", "deployment another"),
        ({"TORPOR_REPLICA": "2"}, "wrong_replica", "replica 2"),
        ({"TORPOR_REVISION": "older"}, "wrong_revision", "revision older"),
    ],
)
def test_a_pod_of_another_replica_or_revision_is_not_used(
    pods: WorkerPods,
    watch: Watch,
    executor: KubernetesExecutor,
    changes: dict[str, str],
    reason: str,
    objection: str,
) -> None:
    watch.enough = reason
    pods.start(0, **changes)
    with pytest.raises(Waited):
        executor.form()
    assert executor.wire_rejected()[reason] >= 1
    watch.enough = "nothing"
    pods.kill(0)
    assert objection in executor._sentence([b"demo-1-worker-0"])
    for worker in (0, 1):
        pods.start(worker)
    executor.form()
    assert REVISION not in executor.waiting_for


def test_a_pod_without_the_right_key_does_not_get_in(
    pods: WorkerPods, watch: Watch, executor: KubernetesExecutor
) -> None:
    file = pods.keys_of(0) / "worker.json"
    stranger = CurveKeys.generate()
    file.write_text(
        f'{{"public": "{stranger.public}", "secret": "{stranger.secret}",'
        f' "server": "{executor._keys.public}"}}'
    )
    watch.enough = "handshake"
    pods.start(0)
    with pytest.raises(Waited):
        executor.form()
    assert "demo-1-worker-0" in watch.sentences[-1]


def test_a_pod_cannot_take_the_place_of_another(
    pods: WorkerPods, watch: Watch, executor: KubernetesExecutor
) -> None:
    watch.enough = "wrong_identity"
    pods.start(0, TORPOR_POD_NAME="demo-1-worker-1")
    with pytest.raises(Waited):
        executor.form()


def test_a_silent_pod_is_lost(pods: WorkerPods, executor: KubernetesExecutor) -> None:
    for worker in (0, 1):
        pods.start(worker)
    executor.form()
    (seen,) = [seen for peer, seen in executor._roster._supervisors.items() if peer.endswith(b"-1")]
    psutil.Process(pods.processes[1].pid).suspend()
    time.sleep(0.1)
    seen.last -= 60.0
    executor._roster._began -= 60.0
    with pytest.raises(GroupLost, match="silent") as lost:
        executor.check_health()
    assert lost.value.reason == "PodLost"
    psutil.Process(pods.processes[1].pid).resume()
    executor.form()
    assert executor.collective_rpc("add", args=(1,)) == [2, 2]


def test_names_of_pods_and_ports_of_groups() -> None:
    assert expected_pods("demo", 3, 2) == [b"demo-3-worker-0", b"demo-3-worker-1"]
    ports = {store_port(new_group_id().hex()) for _ in range(50)}
    assert len(ports) > 40
    assert all(FIRST_PORT <= port < FIRST_PORT + PORTS for port in ports)
