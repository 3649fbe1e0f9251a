"""What clients hear: aborts, logprobs, figures; and answers that cannot be trusted."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler_driver import Driver, request, small_config
from torpor_engine.scheduler import Scheduler
from torpor_protocol.arrays import pack_i32
from torpor_protocol.errors import GroupLost
from torpor_protocol.requests import TokenLogprobs
from torpor_protocol.steps import ModelRunnerOutput

EOS = 2


def test_abort_ends_running_and_waiting_requests_once() -> None:
    driver = Driver(small_config(rows=1), 33)
    for index in (1, 2, 3):
        driver.add(request(index, [9] * 6, ignore_eos=True))
    driver.step()
    driver.abort(1, 3, 3, 99)
    assert driver.clients[1].end is not None and driver.clients[1].end.reason == "abort"
    assert driver.clients[3].end is not None and driver.clients[2].end is None
    driver.abort(1)
    driver.run()
    driver.check_quiet()


def test_a_token_that_comes_after_the_abort_is_dropped() -> None:
    driver = Driver(small_config(rows=2), 33)
    for index in (1, 2):
        driver.add(request(index, [9] * 6, ignore_eos=True))
    driver.fly()
    driver.abort(1)
    driver.add(request(3, [8] * 6, ignore_eos=True))
    driver.land()
    assert driver.clients[1].tokens == [] and driver.clients[1].cached == -1
    assert len(driver.clients[2].tokens) == 1
    driver.run()
    driver.check_quiet()


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_abort_all_ends_everything_that_has_not_been_told(reason: Any) -> None:
    driver = Driver(small_config(rows=1), 33)
    for index, length in ((1, 6), (2, 6), (3, 64)):
        driver.add(request(index, [9] * length))
    driver.step()
    driver.add(request(4, [9] * 64))
    ends = {end.id: end for end in driver.scheduler.abort_all(reason, "The replica stops.")}
    assert ends.keys() == {1, 2, 4}
    assert (ends[1].reason, ends[1].message) == (reason, "The replica stops.")
    assert ends[4].reason == "error" and "64" in ends[4].message
    assert not driver.scheduler.has_unfinished()


def test_logprobs_go_to_those_who_asked_with_their_ids() -> None:
    driver = Driver(small_config(eos=tuple(range(0, 1024, 2))), 33)
    quiet = driver.add(request(11, [9] * 6))
    asked = driver.add(request(12, [8] * 6, logprobs=0, min_tokens=3))
    driver.run()
    assert quiet.logprobs == []
    assert asked.logprobs == asked.tokens and len(asked.tokens) >= 3
    assert asked.end is not None and asked.end.reason == "stop"


def test_the_logprobs_of_a_stop_token_are_not_handed_out() -> None:
    scheduler = Scheduler(small_config(), 33)
    scheduler.add(request(1, [9, 9], logprobs=0))
    message = scheduler.schedule()
    assert message is not None
    entry = TokenLogprobs(0, EOS, -0.1, 1, b"", [])
    result = ModelRunnerOutput(message.step, message.rows, pack_i32([EOS]), [entry])
    assert scheduler.update(message, result).logprobs == []


@pytest.mark.parametrize(
    "change",
    [{"rows": pack_i32([1])}, {"rows": b""}, {"tokens": b""}, {"step": 5}, {"tokens": bytes(8)}],
)
def test_an_answer_to_another_question_costs_the_group(change: dict[str, Any]) -> None:
    scheduler = Scheduler(small_config(), 33)
    scheduler.add(request(1, [9, 9]))
    message = scheduler.schedule()
    assert message is not None
    right = ModelRunnerOutput(message.step, message.rows, pack_i32([50]))
    with pytest.raises(GroupLost, match="Step 0"):
        scheduler.update(message, msgspec.structs.replace(right, **change))
    scheduler.record_loss()
    assert (scheduler.num_running, scheduler.num_waiting) == (0, 1)


def test_counters() -> None:
    driver = Driver(small_config(rows=1), 33)
    for index in (1, 2):
        driver.add(request(index, [9] * 6, max_tokens=4, ignore_eos=True))
    driver.step()
    stats = driver.scheduler.stats()
    assert (stats.running, stats.waiting, stats.deferred, stats.steps) == (1, 1, 0, 1)
    assert (stats.prompt_tokens, stats.generation_tokens) == (6, 1)
    assert stats.kv_cache_usage == pytest.approx(2 / 32)
    driver.run()
    stats = driver.scheduler.stats()
    assert (stats.running, stats.waiting, stats.kv_cache_usage) == (0, 0, 0.0)
    assert (stats.prompt_tokens, stats.generation_tokens) == (12, 8)


def test_cached_prompt_tokens_are_counted_once_in_a_request_s_life() -> None:
    driver = Driver(small_config(), 33)
    driver.add(request(1, [9] * 9, max_tokens=4, ignore_eos=True))
    driver.run()
    assert driver.scheduler.stats().cached_tokens == 0
    driver.add(request(2, [9] * 9, max_tokens=4, ignore_eos=True))
    driver.step()
    driver.scheduler.preempt_all()
    driver.run()
    stats = driver.scheduler.stats()
    assert (stats.prompt_tokens, stats.cached_tokens) == (18, 8)
    assert stats.prefix_hits > 8, "it was looked up again when it was put back"


def test_held_requests_wait_and_are_deferred() -> None:
    driver = Driver(small_config(rows=1), 33)
    for index in (1, 2, 3):
        driver.add(request(index, [9] * 6, ignore_eos=True))
    driver.step()
    stats = driver.scheduler.stats(held=4)
    assert (stats.running, stats.waiting, stats.deferred) == (1, 6, 4)
    stats = driver.scheduler.stats(held=4, paused=True)
    assert (stats.running, stats.waiting, stats.deferred) == (1, 6, 6)
