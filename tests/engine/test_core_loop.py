"""The core loop over the hash runner: sleep, wake, loss and commands in every order."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core_thread import CoreThread
from engine_builders import engine_config
from hash_executor import Fault, HashExecutor, hash_core
from hash_model import expected
from torpor_protocol.arrays import pack_i32
from torpor_protocol.config import EngineConfig, RecoveryConfig, WakeConfig
from torpor_protocol.errors import GroupLost, RankFailed, RecoveryExhausted
from torpor_protocol.requests import (
    AbortRequests,
    AddRequest,
    DrainCommand,
    OnCallCommand,
    SamplingParams,
    SleepCommand,
    WakeCommand,
)

WAKE = WakeConfig(canary_prompt=(5, 6, 7), canary_tokens=2)


def request(id: int, length: int = 9, max_tokens: int = 40) -> AddRequest:
    prompt = [(id * 37 + i) % 900 + 3 for i in range(length)]
    sampling = SamplingParams(max_tokens=max_tokens, seed=id, ignore_eos=True)
    return AddRequest(id, pack_i32(prompt), sampling)


def check(core: CoreThread, config: EngineConfig, *requests: AddRequest) -> None:
    for item in requests:
        prompt = [(item.id * 37 + i) % 900 + 3 for i in range(len(item.prompt) // 4)]
        wanted = expected(prompt, item.sampling, config)
        assert core.tokens[item.id] == wanted.tokens
        assert core.finished[item.id].reason == wanted.reason


def nth(number: int, method: str, error: Exception) -> Fault:
    """A fault at the n-th call of a method."""
    count = itertools.count(1)

    def fault(called: str) -> None:
        if called == method and next(count) == number:
            raise error

    return fault


def paced(called: str) -> None:
    """No fault: steps take so long that a request outlasts what a test does meanwhile."""
    if called == "execute_model":
        time.sleep(0.005)


LOSS = GroupLost("RankLost", "Rank 0 was killed by SIGKILL.")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    started: list[CoreThread] = []

    def begin(*faults: Fault, **changes: Any) -> tuple[CoreThread, EngineConfig]:
        config = engine_config(**{"wake": WAKE, **changes})
        core = hash_core(config, tmp_path, *faults)
        started.append(core)
        return core, config

    yield begin
    for core in started:
        core.close()


def test_requests_that_come_before_it_is_ready_are_answered(start: Any) -> None:
    core, config = start()
    items = [request(id) for id in range(1, 20)]
    core.send(*items)
    core.until(lambda c: len(c.finished) == len(items))
    check(core, config, *items)


@pytest.mark.parametrize("level", [1, 2, 3])
@pytest.mark.parametrize("mode", ["wait", "abort", "keep"])
def test_sleep_during_a_stream(start: Any, level: int, mode: Any) -> None:
    core, config = start(paced)
    item = request(1, max_tokens=100)
    core.send(item)
    core.until(lambda c: len(c.tokens[1]) > 3)
    core.send(SleepCommand(1, level, mode))
    core.until(lambda c: 1 in c.replies)
    assert core.replies[1].error == ""
    core.until(lambda c: c.lifecycle == "Asleep" and c.states[-1].level == level)
    if mode == "abort":
        assert core.finished[1].reason == "abort"
    else:
        assert (1 in core.finished) == (mode == "wait")
        core.send(WakeCommand(2))
        core.until(lambda c: 1 in c.finished and 2 in c.replies)
        check(core, config, item)
    assert (HashExecutor.calls.count("sleep") == 0) == (level == 3)


@pytest.mark.parametrize("level", [1, 2, 3])
def test_a_request_wakes_the_replica_and_it_sleeps_again(start: Any, level: int) -> None:
    wake = WakeConfig(canary_prompt=(5, 6), canary_tokens=2, idle_seconds=0.1, level=level)
    core, config = start(wake=wake)
    core.send(SleepCommand(1, level))
    core.until(lambda c: c.lifecycle == "Asleep")
    item = request(1)
    core.send(item)
    core.until(lambda c: 1 in c.finished)
    check(core, config, item)
    core.until(lambda c: c.lifecycle == "Asleep")


def test_what_waits_for_a_wake_up_is_told_as_deferred(start: Any) -> None:
    wake = WakeConfig(on_request=False, canary_prompt=(5, 6), canary_tokens=2)
    core, config = start(paced, wake=wake)
    kept, held = request(1, max_tokens=100), request(2)
    core.send(kept)
    core.until(lambda c: bool(c.tokens[1]))
    assert core.stats.deferred == 0
    core.send(SleepCommand(1, 1, "keep"))
    core.until(lambda c: c.lifecycle == "Asleep")
    core.send(held)
    core.until(lambda c: c.stats.waiting == 2)
    assert (core.stats.running, core.stats.deferred) == (0, 2)
    core.send(WakeCommand(2))
    core.until(lambda c: {1, 2} <= c.finished.keys() and c.stats.waiting == 0)
    assert core.stats.deferred == 0
    check(core, config, kept, held)


def test_a_request_is_told_while_the_replica_wakes_for_it(start: Any) -> None:
    core, _ = start()
    seen: list[tuple[str, int, int]] = []

    def look(called: str) -> None:
        if called == "wake_up":
            told = core.core.publisher._stats
            seen.append((core.core.status.lifecycle, told.waiting, told.deferred))

    HashExecutor.faults.append(look)
    core.send(SleepCommand(1, 1))
    core.until(lambda c: c.lifecycle == "Asleep")
    core.send(request(1))
    core.until(lambda c: 1 in c.finished)
    assert seen == [("Waking", 1, 1)]


@pytest.mark.parametrize("called", [False, True])
def test_only_a_replica_woken_by_requests_alone_sleeps_again(start: Any, called: bool) -> None:
    wake = WakeConfig(canary_prompt=(5, 6), canary_tokens=2, idle_seconds=0.2)
    core, _ = start(wake=wake)
    core.until(lambda c: c.lifecycle == "Awake")
    assert core.states[-1].woken_by == ""
    core.send(WakeCommand(1), SleepCommand(2, 1))
    core.until(lambda c: c.lifecycle == "Asleep")
    assert all(state.woken_by == "" for state in core.states), "it never slept before"
    core.send(request(1))
    core.until(lambda c: c.lifecycle == "Awake" and c.states[-1].woken_by == "request")
    if called:
        core.send(WakeCommand(3))
        core.until(lambda c: 3 in c.replies and c.states[-1].woken_by == "call")
    woken = len(core.states)
    deadline = time.monotonic() + (1.0 if called else 20.0)
    while core.lifecycle == "Awake" and time.monotonic() < deadline:
        core.listen()
    assert (core.lifecycle == "Awake") == called, core.states[woken:]
    if not called:
        core.until(lambda c: c.lifecycle == "Asleep")
    assert core.states[-1].woken_by == ("call" if called else "")


def test_on_call_is_told_at_once_and_what_was_taken_is_answered_all_the_same(start: Any) -> None:
    core, config = start()
    core.send(SleepCommand(1, 2), OnCallCommand(2, False))
    core.until(lambda c: {1, 2} <= c.replies.keys() and c.lifecycle == "Asleep")
    assert core.states[-1].on_call is False
    item = request(1)
    core.send(item)
    core.until(lambda c: 1 in c.finished)
    check(core, config, item)
    core.send(OnCallCommand(3, True))
    core.until(lambda c: 3 in c.replies)
    assert core.states[-1].on_call is True


def test_without_on_request_the_replica_sleeps_on(start: Any) -> None:
    wake = WakeConfig(canary_prompt=(5, 6), canary_tokens=2, on_request=False)
    core, config = start(wake=wake)
    item = request(1)
    core.send(SleepCommand(1, 2), item)
    core.until(lambda c: 1 in c.replies)
    core.send(DrainCommand(2))
    core.until(lambda c: 2 in c.replies)
    assert core.lifecycle == "Asleep"
    core.send(WakeCommand(3))
    core.until(lambda c: 1 in c.finished)
    check(core, config, item)


def test_commands_twice_and_at_once_are_harmless(start: Any) -> None:
    core, config = start()
    item = request(1)
    commands = [SleepCommand(1, 2), SleepCommand(2, 2), WakeCommand(3), WakeCommand(4)]
    core.until(lambda c: c.lifecycle == "Awake")
    core.send(*commands, item, SleepCommand(5, 1), WakeCommand(6), SleepCommand(7, 3))
    core.until(lambda c: len(c.replies) == 7 and 1 in c.finished)
    check(core, config, item)
    assert {core.replies[call].error for call in (3, 4, 6, 7)} == {""}
    called_off = {"", "A wake-up called this sleep off."}
    assert {core.replies[call].error for call in (1, 2, 5)} <= called_off
    core.send(WakeCommand(8))
    core.until(lambda c: 8 in c.replies and c.lifecycle == "Awake")


def test_a_wake_up_calls_a_draining_sleep_off(start: Any) -> None:
    core, config = start(paced)
    item, late = request(1, max_tokens=110), request(2)
    core.send(item)
    core.until(lambda c: bool(c.tokens[1]))
    core.send(SleepCommand(1, 2, "wait"), late, WakeCommand(2))
    core.until(lambda c: {1, 2} <= c.replies.keys() and {1, 2} <= c.finished.keys())
    check(core, config, item, late)
    assert "called this sleep off" in core.replies[1].error
    assert core.lifecycle == "Awake"


def test_tags_wake_one_after_the_other(start: Any) -> None:
    core, config = start()
    core.send(SleepCommand(1, 2), WakeCommand(2, ("weights",)))
    core.until(lambda c: 2 in c.replies and c.states[-1].asleep == ("kv_cache",))
    item = request(1)
    core.send(item)
    core.until(lambda c: 1 in c.finished)
    check(core, config, item)
    assert core.lifecycle == "Awake"


@pytest.mark.parametrize("call", ["execute_model", "sample_tokens"])
@pytest.mark.parametrize("number", [3, 5, 9, 17])
def test_streams_survive_a_loss_in_any_step(start: Any, call: str, number: int) -> None:
    core, config = start(nth(number, call, LOSS))
    items = [request(id, length=5 * id) for id in range(1, 12)]
    core.send(*items)
    core.until(lambda c: len(c.finished) == len(items))
    check(core, config, *items)
    core.until(lambda c: c.lifecycle == "Awake" and c.states[-1].restarts == 1)
    told = [state for state in core.states if state.lifecycle == "Recovering"]
    assert told and all(state.message == LOSS.cause for state in told)
    assert core.states[-1].last_loss.recover_seconds >= 0


@pytest.mark.parametrize("method", ["init_device", "load_model", "initialize_cache"])
def test_a_loss_while_recovering_is_another_loss(start: Any, method: str) -> None:
    core, config = start(nth(6, "execute_model", LOSS), nth(2, method, LOSS))
    item = request(1)
    core.send(item)
    core.until(lambda c: 1 in c.finished)
    check(core, config, item)
    core.until(lambda c: c.states[-1].restarts == 2)


def test_a_rank_lost_asleep_leaves_it_asleep_until_it_is_woken(start: Any) -> None:
    asleep = False

    def fault(called: str) -> None:
        nonlocal asleep
        if called == "check_health" and asleep:
            asleep = False
            raise LOSS

    core, config = start(fault)
    core.send(SleepCommand(1, 1))
    core.until(lambda c: c.lifecycle == "Asleep")
    asleep = True
    core.until(lambda c: c.states[-1].level == 3)
    assert core.states[-1].message == LOSS.cause
    item = request(1)
    core.send(item)
    core.until(lambda c: 1 in c.finished)
    check(core, config, item)


@pytest.mark.parametrize("method", ["sleep", "wake_up"])
def test_a_rank_that_fails_in_sleep_or_wake_costs_the_group_only(start: Any, method: str) -> None:
    core, config = start(nth(1, method, RankFailed(0, "OSError", "no memory")))
    core.send(SleepCommand(1, 1))
    core.until(lambda c: c.lifecycle == "Asleep")
    assert core.states[-1].level == (3 if method == "sleep" else 1)
    item = request(1)
    core.send(item)
    core.until(lambda c: 1 in c.finished)
    check(core, config, item)


def test_a_woken_group_that_gives_other_tokens_is_formed_anew(start: Any) -> None:
    core, config = start()
    core.send(SleepCommand(1, 1))
    core.until(lambda c: c.lifecycle == "Asleep")
    core.core._golden = (-1,)

    def mend(called: str) -> None:
        if called == "load_model":
            core.core._golden = tuple(expected([5, 6, 7], canary, config).tokens)

    canary = SamplingParams(max_tokens=2, seed=0, temperature=0.0, ignore_eos=True)
    HashExecutor.faults.append(mend)
    core.send(WakeCommand(2))
    core.until(lambda c: 2 in c.replies)
    assert core.states[-1].last_loss.reason == "WakeFailed"
    assert core.lifecycle == "Awake"


def test_too_many_losses_end_the_replica_with_the_reason(start: Any) -> None:
    def always(called: str) -> None:
        if called == "execute_model" and HashExecutor.calls.count("execute_model") > 4:
            raise LOSS

    recovery = RecoveryConfig(max_restarts=2, backoff_seconds=0.0)
    core, _ = start(always, recovery=recovery, wake=WakeConfig(canary=False))
    core.send(request(1))
    with pytest.raises(AssertionError, match="Rank 0 was killed"):
        core.until(lambda c: 1 in c.finished)
    assert isinstance(core.error, RecoveryExhausted)


@pytest.mark.parametrize("external", [True, False])
def test_only_a_loss_of_their_own_making_makes_requests_suspect(start: Any, external: bool) -> None:
    """A request that is there each time the group is killed from outside goes on all the same."""

    def fault(called: str) -> None:
        count = HashExecutor.calls.count("execute_model")
        if called == "execute_model" and 0 < count <= 8:
            raise GroupLost("RankLost", "Rank 0 died.", external=external)

    core, config = start(fault, wake=WakeConfig(canary=False))
    item = request(1)
    core.send(item)
    core.until(lambda c: 1 in c.finished)
    if external:
        check(core, config, item)
    else:
        assert core.finished[1].reason == "error"
        assert core.finished[1].message


def test_aborts_reach_running_held_and_early_requests(start: Any) -> None:
    core, config = start(paced)
    item = request(1, max_tokens=110)
    core.send(request(2), AbortRequests([2]), item)
    core.until(lambda c: 2 in c.finished and bool(c.tokens[1]))
    core.send(SleepCommand(1, 1, "wait"), request(3), AbortRequests([3, 99]))
    core.until(lambda c: 3 in c.finished and 1 in c.replies)
    assert core.finished[3].reason == "abort"
    check(core, config, item)
    assert core.lifecycle == "Asleep"


def test_drain_is_answered_when_nothing_is_left(start: Any) -> None:
    core, _ = start()
    core.send(request(1), DrainCommand(1))
    core.until(lambda c: 1 in c.replies)
    assert 1 in core.finished
