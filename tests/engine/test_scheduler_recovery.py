"""Requests go on after sleep and after the loss of the group."""

from __future__ import annotations

import pytest

from scheduler_driver import Driver, request, small_config
from torpor_protocol.errors import GroupLost


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("in_flight", [0, 1])
def test_requests_go_on_where_they_were(lost: bool, steps: int, in_flight: int) -> None:
    driver = Driver(small_config(rows=3), 65)
    for index in range(5):
        driver.add(request(index, [9] * (3 + index), max_tokens=6, ignore_eos=True))
    for _ in range(steps):
        driver.step()
    for _ in range(in_flight):
        driver.fly()
    if lost:
        driver.lose_group()
    else:
        driver.sleep_and_wake()
    driver.check_consistent()
    driver.run()
    driver.check_quiet()
    assert all(len(client.tokens) == 6 for client in driver.clients.values())


def test_requests_keep_their_order_over_a_loss() -> None:
    driver = Driver(small_config(rows=2), 65)
    for index, priority in ((1, 1), (2, 0), (3, 0)):
        driver.add(request(index, [9] * 3, max_tokens=6, ignore_eos=True, priority=priority))
    driver.step()
    driver.lose_group()
    driver.add(request(4, [9] * 3, priority=-1))
    message = driver.step()
    assert message is not None
    assert [new.sampling.seed for new in message.new] == [4, 2]


def test_a_new_group_gets_no_word_of_old_rows_and_newer_generations() -> None:
    driver = Driver(small_config(), 65)
    for index in range(3):
        driver.add(request(index, [9] * 3, max_tokens=6, ignore_eos=True))
    driver.step()
    driver.abort(1)
    driver.lose_group()
    message = driver.step()
    assert message is not None
    assert message.finished == b""
    assert sorted(new.generation for new in message.new) == [2, 2]


def test_the_result_of_a_step_from_before_a_reset_is_refused() -> None:
    driver = Driver(small_config(), 65)
    driver.add(request(1, [9] * 3, max_tokens=6, ignore_eos=True))
    driver.fly()
    old = driver.flights.popleft()
    driver.sleep_and_wake()
    with pytest.raises(GroupLost, match="Step 0"):
        driver.scheduler.update(*old)
    driver.run()
    driver.check_quiet()


def test_nothing_is_cached_after_a_reset() -> None:
    driver = Driver(small_config(), 65)
    first = driver.add(request(1, [9] * 20, max_tokens=6, ignore_eos=True))
    driver.step()
    driver.sleep_and_wake()
    message = driver.step()
    assert message is not None and message.new[0].num_computed == 0
    second = driver.add(request(2, [9] * 20, max_tokens=6))
    driver.run()
    assert (first.cached, second.cached) == (0, 16)


def test_a_smaller_cache_ends_what_no_longer_fits() -> None:
    driver = Driver(small_config(), 65)
    small = driver.add(request(1, [9] * 3, max_tokens=6, ignore_eos=True))
    large = driver.add(request(2, [9] * 25, max_tokens=6, ignore_eos=True))
    driver.step()
    driver.lose_group(num_blocks=6)
    driver.run()
    assert small.end is not None and small.end.reason == "length"
    assert large.end is not None and large.end.reason == "error"
    assert len(large.tokens) == 1
    driver.check_quiet()
