"""The life of groups under a real supervisor: hello, form, disband, form again, refuse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from fake_pod import NAME, FakePod, alive, eventually, fake_form
from torpor_protocol.methods import encode_call
from torpor_protocol.rpc import (
    NO_GROUP,
    Disband,
    Disbanded,
    Hello,
    RankExited,
    RankHello,
    Reply,
    SupervisorStatus,
    new_group_id,
)


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakePod]:
    """One pod for the whole file: a Form replaces whatever the test before left."""
    with FakePod(tmp_path_factory.mktemp("pod") / "r", devices=2) as pod:
        yield pod


def test_hello_offers_the_pod_and_is_repeated(pod: FakePod) -> None:
    expected = Hello("uid-1", 2, "abc", "uid-2", "pod-3", "127.0.0.1", pod.process.pid, 2)
    incarnations = set()
    for _ in range(2):
        received, message = pod.expect(Hello)
        assert message == msgspec.structs.replace(expected, incarnation=message.incarnation)
        incarnations.add(message.incarnation)
        assert (received.peer, received.group) == (NAME, NO_GROUP)
    assert len(incarnations) == 1 and "" not in incarnations


def test_a_group_forms_calls_and_disbands(pod: FakePod) -> None:
    pids = pod.form(2)
    assert sorted(pids) == [0, 1]
    assert set(pids.values()) <= pod.descendants()
    assert [pod.value("echo", "hi", rank=rank) for rank in (0, 1)] == ["hi", "hi"]
    _, status = pod.expect(SupervisorStatus, lambda got: got.group == pod.group)
    assert status.ranks == [0, 1]
    assert all(resident > 2**20 for resident in status.resident)
    pod.disband()
    assert not any(map(psutil.pid_exists, pids.values())), "dead, and reaped before the answer"
    assert not pod.unread(RankExited), "an ordered death is no loss"


def test_ranks_know_their_threads_and_interface_and_need_no_torch(pod: FakePod) -> None:
    pod.form(1)
    described = pod.value("describe")
    assert described == {
        "threads": "1",
        "interface": "lo",
        "torch": False,
        "parent": pod.fork_server(),
    }


def test_a_new_form_after_a_disband_has_new_processes_and_a_new_count(pod: FakePod) -> None:
    first = pod.form(1)
    assert [pod.value("step") for _ in range(3)] == [1, 2, 3]
    pod.disband()
    second = pod.form(1)
    assert first[0] != second[0]
    assert pod.value("step") == 1


def test_a_second_form_disbands_the_first_group(pod: FakePod) -> None:
    first, old = pod.form(2), pod.group
    second = pod.form(2)
    assert not any(map(alive, first.values()))
    assert all(map(alive, second.values()))
    # Nobody waits for it any more, but it is said.
    assert pod.router.rejected["stale_group"] >= 1 and pod.group != old


def test_too_many_ranks_are_refused_and_the_pod_stays_on_offer(pod: FakePod) -> None:
    pod.form(3, hello=False)
    _, exited = pod.expect(RankExited)
    assert exited.pid == 0 and exited.status > 0
    assert "This pod holds 2 ranks; the engine asked for 3." in exited.log_tail
    assert pod.descendants() == {pod.fork_server()}
    pod.form(2)
    assert pod.value("echo", "again") == "again"


def test_a_group_left_by_an_engine_that_died_gives_way_to_the_next_engine(pod: FakePod) -> None:
    first = pod.form(1)
    # What a new engine sees: it knows no group, and the pod still says hello.
    pod.router.current_group = NO_GROUP
    pod.expect(Hello)
    second = pod.form(1)
    assert not alive(first[0]) and alive(second[0])


def test_frames_of_another_group_are_ignored(pod: FakePod) -> None:
    pids, stale = pod.form(1), new_group_id()
    pod.send(pod.peer(0), encode_call("step", (), {}, -1), group=stale)
    pod.router.current_group = stale
    pod.send(NAME, Disband(), group=stale)
    pod.expect(Disbanded, lambda received: received.group == stale)
    assert not pod.unread(Reply)
    pod.router.current_group = pod.group
    # Frames arrive in order: the first step was dropped, not only answered late.
    assert pod.value("step") == 1
    assert alive(pids[0])


def test_a_worker_that_cannot_be_built_ends_its_rank_with_the_reason(pod: FakePod) -> None:
    pod.form(1, worker="BrokenWorker", hello=False)
    _, exited = pod.expect(RankExited)
    assert exited.status == 1
    assert "RuntimeError: the device is missing" in exited.log_tail
    pod.form(1, worker="NoWorker", hello=False)
    _, exited = pod.expect(RankExited)
    assert "Worker class 'fake_worker:NoWorker' cannot be imported" in exited.log_tail
    assert not pod.unread(RankHello)


def test_curve_keys_reach_supervisor_and_ranks(tmp_path: Path) -> None:
    with FakePod(tmp_path / "r", devices=2, curve=True) as pod:
        pod.form(2)
        assert pod.value("add", 2, 3, rank=1) == 5
        pod.disband()


def test_cycles_leave_processes_and_descriptors_as_they_were(pod: FakePod) -> None:
    def held() -> list[int]:
        processes = [psutil.Process(pid) for pid in (pod.process.pid, pod.fork_server())]
        return [process.num_fds() for process in processes]

    pod.form(2)
    pod.disband()
    before = held()
    for _ in range(20):
        group = pod.group = pod.router.current_group = new_group_id()
        for rank in range(2):
            pod.admit(pod.peer(rank))
        pod.send(NAME, fake_form(group, 2))
        for _ in range(2):
            pod.expect(RankHello)
        pod.disband()
    assert pod.descendants() == {pod.fork_server()}
    assert eventually(lambda: held() == before), (held(), before)
    assert {path.name for path in pod.folder.iterdir()} == {"log", "workers.sock"}
