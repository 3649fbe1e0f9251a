"""What is put into a step: budget, chunks, order, admission, preemption; and the message's size."""

from __future__ import annotations

import pytest

from scheduler_driver import Driver, request, small_config
from torpor_protocol.arrays import unpack_i32
from torpor_protocol.steps import SchedulerOutput

LONG = {"max_tokens": 30, "ignore_eos": True}


def prompt(length: int, first: int = 10) -> list[int]:
    return list(range(first, first + length))


def counts(message: SchedulerOutput | None) -> list[tuple[int, int]]:
    """(row, tokens) in batch order."""
    assert message is not None
    rows, tokens = unpack_i32(message.rows).tolist(), unpack_i32(message.num_tokens).tolist()
    return list(zip(rows, tokens, strict=True))


def test_nothing_to_do_is_no_step() -> None:
    driver = Driver(small_config(), 17)
    assert driver.scheduler.schedule() is None
    assert not driver.scheduler.has_unfinished()


@pytest.mark.parametrize(
    ("chunked", "budget", "lengths", "steps"),
    [
        (True, 8, [20], [[8], [8], [4], [1]]),
        (True, 8, [3, 20], [[3, 5], [1, 7], [1, 7], [1, 1]]),
        (True, 8, [5, 7], [[5, 3], [1, 4], [1, 1]]),
        (True, 8, [5, 3, 3], [[5, 3], [1, 1, 3], [1, 1, 1]]),
        (False, 8, [5, 3, 3], [[5, 3], [1, 1, 3], [1, 1, 1]]),
        (False, 8, [5, 7], [[5], [1, 7], [1, 1]]),
        (False, 8, [5, 8, 1], [[5], [1], [1], [1]]),
        (False, 8, [20], [[8], [8], [4], [1]]),
    ],
)
def test_prompts_share_the_budget(
    chunked: bool, budget: int, lengths: list[int], steps: list[list[int]]
) -> None:
    driver = Driver(small_config(chunked=chunked, budget=budget, prefix_caching=False), 65)
    for index, length in enumerate(lengths):
        driver.add(request(index, prompt(length), **LONG))
    seen = [[tokens for _, tokens in counts(driver.step())] for _ in steps]
    assert [sorted(step) for step in seen] == [sorted(step) for step in steps]


def test_decodes_come_before_prompts_and_older_rows_before_younger() -> None:
    driver = Driver(small_config(), 65)
    for index, length in ((1, 4), (2, 3)):
        driver.add(request(index, prompt(length), **LONG))
    driver.step()
    driver.add(request(3, prompt(6, first=50), **LONG))
    assert counts(driver.step()) == [(0, 1), (1, 1), (2, 6)]


def test_a_one_token_prompt_is_among_the_decodes() -> None:
    driver = Driver(small_config(), 65)
    driver.add(request(1, prompt(6), **LONG))
    driver.add(request(2, [9], **LONG))
    assert counts(driver.step()) == [(1, 1), (0, 6)]


def test_more_decodes_than_budget_still_end() -> None:
    driver = Driver(small_config(budget=2), 65)
    clients = [driver.add(request(index, prompt(3), **LONG)) for index in range(4)]
    driver.run()
    assert all(len(client.tokens) == 30 for client in clients)
    driver.check_quiet()


def test_requests_wait_for_a_row() -> None:
    driver = Driver(small_config(rows=2), 65)
    for index in range(3):
        driver.add(request(index, prompt(3), max_tokens=2, ignore_eos=True))
    driver.step()
    assert (driver.scheduler.num_running, driver.scheduler.num_waiting) == (2, 1)
    driver.step()
    driver.step()
    assert driver.clients[2].cached == 0


def test_the_queue_is_by_priority_then_arrival_and_nobody_passes_its_head() -> None:
    driver = Driver(small_config(rows=1), 65)
    for index, priority in ((1, 0), (2, 5), (3, -1), (4, 0)):
        driver.add(request(index, prompt(3), max_tokens=1, ignore_eos=True, priority=priority))
    order = []
    while (message := driver.step()) is not None:
        assert len(message.new) == 1
        order.append(message.new[0].sampling.seed)
    assert order == [3, 1, 4, 2]


@pytest.mark.parametrize(("length", "running"), [(16, 2), (17, 1), (20, 1)])
def test_admission_leaves_a_block_for_each_running_row(length: int, running: int) -> None:
    driver = Driver(small_config(), 9)
    driver.add(request(1, prompt(12), **LONG))
    driver.add(request(2, prompt(length, first=100), **LONG))
    driver.step()
    assert driver.scheduler.num_running == running


def test_a_shared_prompt_is_computed_once() -> None:
    driver = Driver(small_config(), 65)
    first = driver.add(request(1, prompt(10), **LONG))
    driver.step()
    second = driver.add(request(2, prompt(10), **LONG))
    assert counts(driver.step()) == [(0, 1), (1, 2)]
    assert (first.cached, second.cached) == (0, 8)
    salted = driver.add(request(3, prompt(10), cache_salt="other", **LONG))
    driver.step()
    assert salted.cached == 0
    stats = driver.scheduler.stats()
    assert (stats.prefix_queries, stats.prefix_hits) == (30, 8)


def test_output_is_cached_for_the_next_turn() -> None:
    driver = Driver(small_config(), 65)
    first = driver.add(request(1, prompt(6), max_tokens=10, ignore_eos=True))
    driver.run()
    turn = prompt(6) + first.tokens + [1, 2, 3]
    second = driver.add(request(2, turn, max_tokens=1))
    driver.run()
    assert second.cached == 12
    driver.check_quiet()
