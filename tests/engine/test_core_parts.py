"""The core's pure parts: block and loss budgets, framing, formation, roster, calls."""

from __future__ import annotations

import socket
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_builders import engine_config
from torpor_engine.core.blocks import plan_blocks
from torpor_engine.core.group import LossBudget, user_error
from torpor_engine.executor.calls import GroupCall
from torpor_engine.executor.formation import plan_formation
from torpor_engine.executor.roster import Roster
from torpor_engine.link import FrameBuffer, FrameSocket, frame
from torpor_protocol import rpc
from torpor_protocol.config import KVCacheSpec, RecoveryConfig
from torpor_protocol.errors import (
    DeadlineMissed,
    EngineDead,
    GroupLost,
    MemoryBudgetError,
    ModelError,
    RankFailed,
    RecoveryExhausted,
    TorporError,
    class_name,
)
from torpor_protocol.limits import MAX_MESSAGE_BYTES
from torpor_protocol.transport import CurveKeys

SPEC = KVCacheSpec(2, 2, 16, 4, "float32", page_bytes=1024)


def test_blocks_are_what_the_poorest_rank_holds() -> None:
    config = engine_config(tensor=2)
    assert plan_blocks(config, [SPEC, SPEC], [200 * 1024, 100 * 1024]) == 100


def test_blocks_never_exceed_what_all_rows_can_use() -> None:
    config = engine_config()
    most = 1 + config.scheduler.max_num_seqs * config.model.max_model_len // 4
    assert plan_blocks(config, [SPEC], [2**40]) == most


def test_too_small_a_cache_names_the_length_that_fits() -> None:
    with pytest.raises(MemoryBudgetError) as refused:
        plan_blocks(engine_config(), [SPEC], [11 * 1024])
    assert "--max-model-len 40" in refused.value.fix


def test_losses_within_the_window_are_bounded_and_the_pause_doubles() -> None:
    budget = LossBudget(RecoveryConfig(max_restarts=3, window_seconds=10, backoff_seconds=1))
    loss = GroupLost("RankLost", "Rank 1 was killed.")
    assert [budget.note(loss, now) for now in (0.0, 1.0, 2.0)] == [0.0, 1.0, 3.0]
    with pytest.raises(RecoveryExhausted, match="4 times within 10 s"):
        budget.note(loss, 3.0)
    assert budget.total == 4


def test_losses_leave_the_window_and_progress_resets_the_pause() -> None:
    budget = LossBudget(RecoveryConfig(max_restarts=1, window_seconds=10, backoff_seconds=1))
    loss = GroupLost("RankLost", "Rank 1 was killed.")
    assert budget.note(loss, 0.0) == 0.0
    budget.progressed()
    assert budget.note(loss, 20.0) == 0.0


@given(st.lists(st.binary(max_size=50), max_size=8), st.integers(1, 7))
def test_frames_survive_any_cut_of_the_stream(bodies: list[bytes], size: int) -> None:
    stream = b"".join(frame(body) for body in bodies)
    buffer = FrameBuffer()
    got: list[bytes] = []
    for start in range(0, len(stream), size):
        got += buffer.feed(stream[start : start + size])
    assert got == bodies


def test_a_senseless_length_is_refused() -> None:
    with pytest.raises(EngineDead):
        FrameBuffer().feed((MAX_MESSAGE_BYTES + 1).to_bytes(4, "little"))


def test_frame_socket_never_blocks_and_loses_nothing() -> None:
    ours, theirs = socket.socketpair()
    left, right = FrameSocket(ours), FrameSocket(theirs)
    body = bytes(2**20)
    for _ in range(8):
        left.send(body)
    assert left.backlog
    got: list[bytes] = []
    while len(got) < 8:
        got += right.receive()
        left.flush()
    assert all(item == body for item in got)
    ours.close()
    assert right.receive() == []
    assert right.closed
    theirs.close()


def hello(name: str, devices: int) -> rpc.Hello:
    return rpc.Hello("uid", 0, "rev", name, name, "127.0.0.1", 1, devices)


def test_formation_keeps_neighbours_together_in_the_order_of_pods() -> None:
    config = engine_config(tensor=2, pipeline=2)
    hellos = {b"b": hello("pod-1", 2), b"a": hello("pod-0", 2), b"c": hello("pod-2", 2)}
    members = plan_formation(config, hellos, "ab" * 16, "file:///s", "lo", None)
    assert [member.supervisor for member in members] == [b"a", b"b"]
    ranks = [[a.rank for a in member.form.assignments] for member in members]
    assert ranks == [[0, 1], [2, 3]]
    assert members[1].form.assignments[0].local_rank == 0
    assert members[0].form.keys == [rpc.RankKeys(), rpc.RankKeys()]


def test_formation_takes_pods_by_their_numbers() -> None:
    hellos = {f"p-{j}".encode(): hello(f"demo-1-worker-{j}", 1) for j in (10, 2, 0, 11, 1)}
    members = plan_formation(
        engine_config(tensor=1, pipeline=4), hellos, "ab" * 16, "tcp://h:1", "", None
    )
    assert [member.supervisor for member in members] == [b"p-0", b"p-1", b"p-2", b"p-10"]


def test_formation_gives_every_rank_keys_of_its_own() -> None:
    server = CurveKeys.generate()
    members = plan_formation(
        engine_config(tensor=2), {b"a": hello("pod-0", 2)}, "ab" * 16, "file:///s", "lo", server
    )
    first, second = members[0].form.keys
    assert first.server == second.server == server.public
    assert first.secret != second.secret


def test_formation_refuses_too_few_devices() -> None:
    with pytest.raises(GroupLost, match="devices for 1 ranks of 2"):
        plan_formation(
            engine_config(tensor=2), {b"a": hello("p", 1)}, "ab" * 16, "file:///s", "lo", None
        )


def test_roster_names_the_signal_that_killed_a_rank() -> None:
    roster = Roster(2)
    roster.begin(rpc.new_group_id())
    roster.take(b"r", rpc.RankHello(1, 77))
    roster.take(b"s", rpc.RankExited(1, 77, -9))
    assert [state.state for state in roster.rank_states()] == ["was killed by SIGKILL"]
    with pytest.raises(GroupLost, match=r"Rank 1 \(process 77\) was killed by SIGKILL"):
        roster.raise_loss()
    roster.raise_loss()


def test_a_kill_for_want_of_memory_is_no_strangers() -> None:
    roster = Roster(2)
    roster.begin(rpc.new_group_id())
    roster.take(b"s", rpc.RankExited(1, 77, -9, "...\nThe kernel ... is out of memory."))
    with pytest.raises(GroupLost) as lost:
        roster.raise_loss()
    assert (lost.value.reason, lost.value.external) == ("OutOfMemory", False)


@pytest.mark.parametrize(
    ("change", "lost", "external"),
    [
        ({}, False, False),
        ({"incarnation": "b"}, True, False),
        ({"pid": 2}, True, False),
        ({"pod_uid": "other", "incarnation": "b"}, True, True),
    ],
)
def test_a_supervisor_that_is_another_process_has_lost_its_ranks(
    change: dict[str, Any], lost: bool, external: bool
) -> None:
    roster = Roster(1)
    first = msgspec.structs.replace(hello("pod-0", 1), incarnation="a")
    roster.take(b"s", first)
    roster.take(b"idle", first)
    roster.begin(rpc.new_group_id(), [b"s"])
    again = msgspec.structs.replace(first, **change)
    roster.take(b"idle", again)
    roster.raise_loss()
    roster.take(b"s", again)
    assert roster.holds_ranks(b"s", 10.0) == (not lost)
    try:
        roster.raise_loss()
        assert not lost
    except GroupLost as loss:
        assert (lost, loss.reason, loss.external) == (True, "PodLost", external)


def test_roster_adds_up_progress_and_knows_when_it_is_complete() -> None:
    roster = Roster(2)
    roster.begin(rpc.new_group_id())
    assert not roster.complete
    for rank in (0, 1):
        roster.take(b"r", rpc.RankHello(rank, 10 + rank))
        progress = roster.take(b"r", rpc.Progress(rank, 1, 4, 100, 400))
    assert roster.complete
    assert progress is not None
    assert (progress.tensors_done, progress.bytes_total) == (2, 800)


def call(world: int = 2, timeout: float = 5.0, result_type: Any = int) -> GroupCall:
    return GroupCall("add", world, timeout, result_type, lambda _: None)


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(value))


def test_a_call_is_done_when_every_rank_has_answered_and_keeps_rank_order() -> None:
    pending = call()
    pending.accept(rpc.Reply(1, raw(11)))
    assert not pending.done()
    pending.accept(rpc.Reply(1, raw(99)))
    pending.accept(rpc.Reply(0, raw(10)))
    assert pending.result() == [10, 11]


def test_an_acknowledgement_is_no_value_of_the_results_type() -> None:
    pending = call()
    pending.accept(rpc.Reply(0))
    pending.accept(rpc.Reply(1, raw(11)))
    assert pending.result() == [None, 11]


def test_the_first_error_wins_and_names_the_rank() -> None:
    pending = call()
    pending.accept(rpc.Reply(1, error=rpc.RankError("ValueError", "no")))
    with pytest.raises(RankFailed, match="Rank 1 failed in add: no") as failed:
        pending.result()
    assert (failed.value.rank, failed.value.error_class) == (1, "ValueError")


def test_an_answer_of_another_type_is_the_ranks_failure() -> None:
    pending = call(world=1)
    pending.accept(rpc.Reply(0, raw("text")))
    with pytest.raises(RankFailed, match="something else"):
        pending.result()


def test_a_missed_deadline_names_the_ranks_that_owe_an_answer() -> None:
    pending = call(timeout=0.0)
    pending.accept(rpc.Reply(0, raw(1)))
    with pytest.raises(DeadlineMissed, match="Rank 1 did not answer add"):
        pending.result()


def test_an_error_crosses_under_a_name_that_both_sides_know() -> None:
    class WeightsCorrupt(ModelError):
        pass

    class OfItsOwn(TorporError):
        pass

    names = [class_name(WeightsCorrupt("x")), class_name(OfItsOwn("x")), class_name(OSError())]
    assert names == ["ModelError", "OfItsOwn", "OSError"]
    failure = RankFailed(0, names[0], "It is corrupt.", "Copy it again.")
    assert isinstance(user_error(failure), ModelError)
