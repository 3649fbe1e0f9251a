"""Calls to real ranks over the wire: who answers what, and that an error ends nothing."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from fake_pod import FakePod, eventually
from torpor_protocol.limits import MAX_ERROR_TEXT
from torpor_protocol.methods import encode_call
from torpor_protocol.rpc import Call, Progress, RankExited, Reply, Shutdown

NOTHING = b"\xc0"


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakePod]:
    """Two ranks for the whole file: no call of any test may end them."""
    with FakePod(tmp_path_factory.mktemp("pod") / "r", devices=2) as pod:
        pod.form(2)
        yield pod


def test_arguments_go_by_position_and_by_name(pod: FakePod) -> None:
    assert pod.value("add", 2, 3) == 5
    assert pod.value("add", 2) == 3
    assert pod.value("add", right=7, left=5) == 12


def test_every_rank_answers_and_echoes_the_sequence(pod: FakePod) -> None:
    call = encode_call("echo", ("hi",), {}, -1)
    for rank in (0, 1):
        sequence = pod.send(pod.peer(rank), call)
        assert pod.reply(rank, sequence) == Reply(rank, msgspec.Raw(b"\xa2hi"))


def test_only_the_output_rank_sends_its_value(pod: FakePod) -> None:
    values = [bytes(pod.call("echo", "hi", rank=rank, output_rank=1).value) for rank in (0, 1)]
    assert values == [NOTHING, b"\xa2hi"]


def test_the_others_send_their_errors_all_the_same(pod: FakePod) -> None:
    reply = pod.call("fail", "ValueError", rank=0, output_rank=1)
    assert reply.error is not None and reply.error.error_class == "ValueError"


def test_calls_that_were_queued_are_answered_in_order(pod: FakePod) -> None:
    first = pod.value("step")
    sequences = [pod.send(pod.peer(0), encode_call("step", (), {}, -1)) for _ in range(50)]
    values = [msgspec.msgpack.decode(pod.reply(0, sequence).value) for sequence in sequences]
    assert values == list(range(first + 1, first + 51))


def test_an_exception_is_answered_with_class_message_and_traceback(pod: FakePod) -> None:
    error = pod.call("fail", "ValueError").error
    assert error is not None
    assert (error.error_class, error.message, error.fix) == ("ValueError", "the value is odd", "")
    assert error.traceback.startswith("Traceback") and "in fail" in error.traceback
    assert pod.value("echo", "goes on") == "goes on"


def test_an_error_of_ours_carries_cause_and_fix_and_no_traceback(pod: FakePod) -> None:
    error = pod.call("fail", "MemoryBudgetError").error
    assert error is not None
    assert error.error_class == "MemoryBudgetError"
    assert (error.message, error.fix, error.traceback) == ("It does not fit.", "Take less.", "")


def test_a_long_message_is_cut(pod: FakePod) -> None:
    error = pod.call("fail", "long").error
    assert error is not None
    assert len(error.message) == len(error.traceback) == MAX_ERROR_TEXT


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (encode_call("not_callable", (), {}, -1), "not_callable"),
        (encode_call("shutdown", (), {}, -1), "shutdown"),
        (encode_call("__init__", (), {}, -1), "__init__"),
        (encode_call("add", ("two", 3), {}, -1), "int"),
        (encode_call("add", (1, 2, 3), {}, -1), "arguments"),
        (encode_call("add", (1,), {"up": 2}, -1), "arguments"),
        (Call("add", args=msgspec.Raw(b"\xa2hi")), "array"),
    ],
)
def test_a_wrong_call_is_answered_with_an_error(pod: FakePod, call: Call, part: str) -> None:
    error = pod.reply(0, pod.send(pod.peer(0), call)).error
    assert error is not None
    assert error.error_class == "WireError" and part in error.message


def test_a_missing_argument_is_an_error_too(pod: FakePod) -> None:
    error = pod.call("add").error
    assert error is not None and "left" in error.message


@pytest.mark.parametrize(
    ("method", "error_class"), [("too_much", "WireError"), ("not_encodable", "TypeError")]
)
def test_a_value_that_cannot_be_sent_is_an_error(
    pod: FakePod, method: str, error_class: str
) -> None:
    error = pod.call(method).error
    assert error is not None and error.error_class == error_class
    assert pod.value("echo", "goes on") == "goes on"


def test_progress_comes_seldom_and_ends_with_the_last(pod: FakePod) -> None:
    pod.value("load", 10_000, rank=1)
    reports = pod.unread(Progress)
    assert len(reports) < 100
    assert reports[-1] == Progress(1, 10_000, 10_000, 100_000, 100_000)


def test_shutdown_of_a_rank_shuts_its_worker_down(pod: FakePod) -> None:
    pids = pod.form(2)
    pod.send(pod.peer(1), Shutdown())
    _, exited = pod.expect(RankExited)
    assert (exited.rank, exited.pid, exited.status) == (1, pids[1], 0)
    assert exited.log_tail.endswith("The worker shut down.\n")
    assert eventually(lambda: "[rank 1] The worker shut down." in pod.log.read_text())
    assert pod.value("echo", "alone") == "alone"
