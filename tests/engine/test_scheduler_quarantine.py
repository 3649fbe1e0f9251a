"""Requests that may be what kills the group are found, and fail alone."""

from __future__ import annotations

import pytest

from scheduler_driver import Driver, request, small_config
from torpor_protocol.arrays import unpack_i32
from torpor_protocol.steps import SchedulerOutput

POISON = 666


def ids_in(driver: Driver, message: SchedulerOutput) -> set[int]:
    ids = driver.scheduler._state.rows.ids
    return set(ids[unpack_i32(message.rows)].tolist())


def holds_poison(driver: Driver, message: SchedulerOutput) -> bool:
    """Whether a row that computes something in this step has the token in its prompt."""
    runner = driver.runner
    return any(POISON in runner.rows[row].tokens for row in unpack_i32(message.rows).tolist())


def run_with_poison(driver: Driver, limit: int = 2_000) -> list[set[int]]:
    """Whoever computes the poisonous token kills the group. Returns the batch of each loss."""
    losses = []
    while driver.scheduler.has_unfinished():
        limit -= 1
        assert limit, "the scheduler does not come to an end"
        message = driver.fly()
        if message is not None and holds_poison(driver, message):
            losses.append(ids_in(driver, message))
            driver.lose_group()
        elif message is None:
            driver.step()
        else:
            driver.land()
        driver.check_consistent()
    return losses


def test_a_loss_between_steps_counts_against_nobody() -> None:
    driver = Driver(small_config(), 65)
    client = driver.add(request(1, [9] * 20, max_tokens=6, ignore_eos=True))
    for _ in range(10):
        driver.lose_group()
    assert not driver.scheduler._state.quarantine.watching
    driver.run()
    assert client.end is not None and client.end.reason == "length"


def test_progress_between_losses_clears_a_request() -> None:
    driver = Driver(small_config(), 65)
    client = driver.add(request(1, [9] * 20, max_tokens=12, ignore_eos=True))
    while client.end is None:
        driver.fly()
        driver.lose_group()
        driver.step()
        assert driver.scheduler.num_held == 0
    assert client.end.reason == "length"
    driver.check_quiet()


def test_only_the_third_loss_without_a_token_ends_a_request() -> None:
    driver = Driver(small_config(budget=4), 65)
    client = driver.add(request(1, [9] * 20, max_tokens=12, ignore_eos=True))
    for loss in range(3):
        assert driver.scheduler._state.ended == [], f"ended at loss {loss}"
        driver.step()
        driver.fly()
        driver.lose_group()
    driver.step()
    assert client.end is not None and client.end.reason == "error"
    assert "3 times" in client.end.message
    driver.check_quiet()


@pytest.mark.parametrize("rows", [1, 4, 64])
@pytest.mark.parametrize("budget", [6, 512])
def test_one_poisonous_request_fails_alone(rows: int, budget: int) -> None:
    driver = Driver(small_config(rows=rows, budget=budget), 400)
    for index in range(64):
        poison = [POISON] if index == 20 else [9]
        driver.add(request(index, poison * 4 + [index], max_tokens=5, ignore_eos=True))
    losses = run_with_poison(driver)
    assert len(losses) == 3 and losses[-1] == {20}
    for index, client in driver.clients.items():
        assert client.end is not None
        assert client.end.reason == ("error" if index == 20 else "length")
    driver.check_quiet()


def test_several_poisonous_requests_fail_and_the_others_go_on() -> None:
    driver = Driver(small_config(rows=8), 200)
    for index in range(20):
        poison = [POISON] if index in (3, 4, 12) else [9]
        driver.add(request(index, poison * 4 + [index], max_tokens=5, ignore_eos=True))
    losses = run_with_poison(driver)
    reasons = {index: client.end.reason for index, client in driver.clients.items() if client.end}
    assert {index for index, reason in reasons.items() if reason == "error"} == {3, 4, 12}
    assert len(reasons) == 20 and len(losses) <= 9
    driver.check_quiet()


def test_suspects_run_alone_one_after_the_other_and_everyone_else_waits() -> None:
    driver = Driver(small_config(rows=8), 65)
    for index in range(3):
        driver.add(request(index, [9] * 6 + [index], max_tokens=5, ignore_eos=True))
    for _ in range(2):
        driver.fly()
        driver.lose_group()
    driver.add(request(9, [8] * 6, max_tokens=5, ignore_eos=True, priority=-1))
    assert (driver.scheduler.num_waiting, driver.scheduler.num_held) == (4, 4)
    assert driver.scheduler.stats().deferred == 4
    alone = []
    while driver.scheduler._state.quarantine.active:
        message = driver.fly()
        assert message is not None
        alone.append(ids_in(driver, message))
        driver.land()
        driver.check_consistent()
    assert alone == [{0}, {1}, {2}]
    assert driver.scheduler.num_held == 0
    driver.run()
    driver.check_quiet()
    assert all(len(client.tokens) == 5 for client in driver.clients.values())


def test_aborting_the_suspects_ends_the_quarantine() -> None:
    driver = Driver(small_config(rows=8), 65)
    for index in range(3):
        driver.add(request(index, [9] * 6 + [index], max_tokens=5, ignore_eos=True))
    for _ in range(2):
        driver.fly()
        driver.lose_group()
    driver.fly()
    driver.abort(1)
    driver.abort(0)
    driver.land()
    driver.abort(2)
    driver.add(request(4, [9]))
    assert driver.scheduler.num_held == 0
    driver.run()
    driver.check_quiet()
