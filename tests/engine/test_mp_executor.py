"""The mp executor over real processes and a worker without torch, on ipc and on tcp with CURVE."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine_builders import engine_config
from torpor_engine.executor.base import ExecutorHooks
from torpor_engine.executor.mp import MpExecutor
from torpor_protocol.errors import DeadlineMissed, GroupLost, RankFailed
from unpickling import WAYS

# What a user is promised is one second; beside a whole test run a machine may take a moment more.
DEATH_SECONDS = 3.0
SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture(params=["ipc", "tcp"])
def executor(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MpExecutor]:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SUPPORT), os.environ["PYTHONPATH"]]))
    tmp_path.chmod(0o700)
    config = engine_config(
        tensor=2, worker_class="fake_worker:FakeWorker", worker_transport=request.param
    )
    made = MpExecutor(config, ExecutorHooks(run_dir=tmp_path))
    made.form()
    yield made
    made.shutdown()
    assert psutil.Process().children(recursive=True) == []
    assert list(tmp_path.iterdir()) == []


def lost(executor: MpExecutor, seconds: float = 10.0) -> tuple[GroupLost, float]:
    """The loss that an idle group tells of, and after how many seconds."""
    started = time.monotonic()
    while time.monotonic() - started < seconds:
        try:
            executor.check_health()
        except GroupLost as loss:
            return loss, time.monotonic() - started
        time.sleep(0.02)
    raise AssertionError("nothing was noticed")


def test_every_rank_answers_in_rank_order(executor: MpExecutor) -> None:
    assert executor.collective_rpc("add", args=(2,), kwargs={"right": 3}) == [5, 5]
    pids = [state.pid for state in executor.rank_states()]
    assert len(set(pids)) == 2
    assert all(psutil.pid_exists(pid) for pid in pids)


def test_only_the_output_rank_gives_its_value(executor: MpExecutor) -> None:
    assert executor.collective_rpc("echo", args=("x",), output_rank=1) == [None, "x"]


def test_calls_may_be_under_way_together(executor: MpExecutor) -> None:
    first = executor.collective_rpc("step", non_block=True)
    second = executor.collective_rpc("step", non_block=True)
    assert second.result() == [2, 2]
    assert first.result() == [1, 1]


def test_errors_carry_rank_class_and_sentences(executor: MpExecutor) -> None:
    with pytest.raises(RankFailed, match="the value is odd") as failed:
        executor.collective_rpc("fail", args=("ValueError",))
    assert failed.value.error_class == "ValueError"
    with pytest.raises(RankFailed) as user:
        executor.collective_rpc("fail", args=("MemoryBudgetError",))
    assert (user.value.cause, user.value.fix) == ("It does not fit.", "Take less.")
    assert executor.collective_rpc("add", args=(1,)) == [2, 2]


@pytest.mark.parametrize(
    ("method", "args"),
    [("no_such_method", ()), ("add", ("one",)), ("__init__", ()), ("add", (1, 2, 3))],
)
def test_calls_that_break_the_contract_are_refused(
    executor: MpExecutor, method: str, args: tuple[Any, ...]
) -> None:
    with pytest.raises(RankFailed) as refused:
        executor.collective_rpc(method, args=args)
    assert refused.value.error_class == "WireError"
    assert executor.collective_rpc("add", args=(1,)) == [2, 2]


def test_nothing_can_be_unpickled_in_a_rank(executor: MpExecutor) -> None:
    for outcomes in executor.collective_rpc("unpickle"):
        assert outcomes.keys() == WAYS.keys()
        assert all("something was unpickled" in text for text in outcomes.values()), outcomes


def test_a_missed_deadline_names_the_ranks(executor: MpExecutor) -> None:
    with pytest.raises(DeadlineMissed, match="did not answer hang within"):
        executor.collective_rpc("hang", 0.3, (30.0,))


def test_a_killed_rank_is_noticed(executor: MpExecutor) -> None:
    os.kill(executor.rank_states()[1].pid, signal.SIGKILL)
    loss, seconds = lost(executor)
    assert loss.reason == "RankLost"
    assert "Rank 1" in loss.cause and "SIGKILL" in loss.cause
    assert seconds < DEATH_SECONDS


def test_a_stopped_rank_is_noticed(executor: MpExecutor) -> None:
    os.kill(executor.rank_states()[0].pid, signal.SIGSTOP)
    loss, seconds = lost(executor, 12.0)
    assert loss.reason == "RankStalled"
    assert "Rank 0" in loss.cause
    assert seconds < 10.0


def test_a_killed_supervisor_takes_its_ranks_along(executor: MpExecutor) -> None:
    ranks = [psutil.Process(state.pid) for state in executor.rank_states()]
    (supervisor,) = psutil.Process().children()
    supervisor.kill()
    loss, seconds = lost(executor)
    assert loss.reason == "SupervisorLost" and "SIGKILL" in loss.cause
    assert seconds < DEATH_SECONDS
    _, alive = psutil.wait_procs(ranks, timeout=5)
    assert alive == []


@pytest.mark.parametrize("victim", ["rank", "supervisor"])
def test_a_group_is_formed_anew_after_any_loss(executor: MpExecutor, victim: str) -> None:
    old = executor.group
    if victim == "rank":
        os.kill(executor.rank_states()[0].pid, signal.SIGKILL)
    else:
        psutil.Process().children()[0].kill()
    lost(executor)
    executor.form()
    assert executor.group != old
    assert executor.collective_rpc("add", args=(1,)) == [2, 2]


def test_a_call_that_meets_a_death_tells_of_the_death(executor: MpExecutor) -> None:
    call = executor.collective_rpc("hang", 20.0, (30.0,), non_block=True)
    os.kill(executor.rank_states()[1].pid, signal.SIGKILL)
    with pytest.raises(GroupLost, match=r"Rank 1 .* was killed by SIGKILL"):
        call.result()
