"""Kill and stop every process of a pod: what is told, how soon, and what is left (nothing)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from fake_pod import NAME, FakePod, alive, eventually, stop
from torpor_protocol.methods import encode_call
from torpor_protocol.rpc import RankExited, RankStalled, Shutdown


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[FakePod]:
    with FakePod(tmp_path / "r") as pod:
        yield pod


def test_a_killed_rank_is_told_within_a_second(pod: FakePod) -> None:
    pids = pod.form(3)
    os.kill(pids[1], signal.SIGKILL)
    received, exited = pod.expect(RankExited, within=1.0)
    assert (exited.rank, exited.pid, exited.status) == (1, pids[1], -signal.SIGKILL)
    assert (received.peer, received.group) == (NAME, pod.group)
    assert pod.value("echo", "others live on", rank=2) == "others live on"
    pod.disband()


def test_an_exit_is_told_with_its_status_and_the_end_of_the_log(pod: FakePod) -> None:
    pod.form(1)
    pod.value("write", "0123456789" * 10, 1000)
    pod.value("write", "the last words", 1)
    pod.send(pod.peer(0), encode_call("leave", (3,), {}, -1))
    _, exited = pod.expect(RankExited)
    assert exited.status == 3
    assert exited.log_tail.endswith("0123456789\nthe last words\n")
    assert len(exited.log_tail) == 8 * 2**10
    # ... and the whole of it went to the pod's own log.
    assert pod.log.read_text().count("[rank 0] 0123456789") == 1000


def test_a_stopped_rank_is_told_once_with_its_state(pod: FakePod) -> None:
    pids = pod.form(2)
    stop(pids[0])
    _, stalled = pod.expect(RankStalled, within=5.0)
    assert (stalled.rank, stalled.pid, stalled.state) == (0, pids[0], "T")
    assert 1.0 <= stalled.seconds < 5.0
    assert not pod.unread(RankStalled, wait=1.5)
    pod.disband()
    assert not psutil.pid_exists(pids[0])


def test_a_busy_rank_is_not_stalled_and_can_be_killed(pod: FakePod) -> None:
    pids = pod.form(1)
    pod.send(pod.peer(0), encode_call("hang", (1000.0,), {}, -1))
    assert not pod.unread(RankStalled, wait=2.0)
    pod.disband()
    assert not alive(pids[0])


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_lost_fork_server_is_told_rank_by_rank_and_replaced(pod: FakePod, how: str) -> None:
    pids = pod.form(2)
    old = pod.fork_server()
    if how == "killed":
        os.kill(old, signal.SIGKILL)
    else:
        stop(old)
    told = {pod.expect(RankExited, within=5.0)[1] for _ in range(2)}
    assert {exited.pid for exited in told} == set(pids.values())
    assert {exited.status for exited in told} == {-signal.SIGKILL}
    assert not any(map(psutil.pid_exists, pids.values()))
    assert eventually(lambda: not psutil.pid_exists(old)), "reaped, maybe after its ranks were"
    pod.disband()
    pod.form(2)
    assert pod.fork_server() != old
    assert pod.value("echo", "new", rank=1) == "new"


def test_a_lost_fork_server_does_not_lose_a_disband(pod: FakePod) -> None:
    pids = pod.form(2)
    stop(pod.fork_server())
    pod.disband()
    assert not any(map(psutil.pid_exists, pids.values()))


def test_a_child_of_a_dead_rank_is_killed(pod: FakePod) -> None:
    pids = pod.form(1)
    grandchild = pod.value("start_child")
    assert alive(grandchild)
    os.kill(pids[0], signal.SIGKILL)
    pod.expect(RankExited)
    assert eventually(lambda: not psutil.pid_exists(grandchild)), "killed and reaped"


def test_sigkill_of_the_supervisor_ends_everything(pod: FakePod) -> None:
    pod.form(3)
    assert len(pod.seen) == 5
    os.kill(pod.process.pid, signal.SIGKILL)
    pod.process.wait()
    assert pod.all_gone()
    assert {path.name for path in pod.folder.iterdir()} == {"log", "workers.sock"}


def test_sigkill_of_the_supervisor_while_a_rank_is_stopped(pod: FakePod) -> None:
    pids = pod.form(2)
    stop(pids[1])
    os.kill(pod.process.pid, signal.SIGKILL)
    pod.process.wait()
    assert pod.all_gone()


@pytest.mark.parametrize("how", ["end of input", "SIGTERM", "Shutdown"])
def test_an_ordered_end_leaves_nothing(pod: FakePod, how: str) -> None:
    pod.form(2)
    assert pod.process.stdin is not None
    if how == "end of input":
        pod.process.stdin.close()
    elif how == "SIGTERM":
        pod.process.terminate()
    else:
        pod.send(NAME, Shutdown())
    assert pod.process.wait(10) == 0
    assert not any(map(alive, pod.seen)), "all of it before the supervisor itself ended"
    assert {path.name for path in pod.folder.iterdir()} == {"log", "workers.sock"}
    assert "Traceback" not in pod.log.read_text()


def test_ctrl_c_is_the_engines_business(pod: FakePod) -> None:
    pod.form(1)
    for pid in pod.seen:
        os.kill(pid, signal.SIGINT)
    assert pod.value("echo", "still here") == "still here"
    assert all(map(alive, pod.seen))
