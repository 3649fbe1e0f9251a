"""Who gives way when blocks run out, and how they come back."""

from __future__ import annotations

from scheduler_driver import Driver, request, small_config
from torpor_protocol.arrays import pack_i32, unpack_i32

LONG = {"max_tokens": 30, "ignore_eos": True}


def prompt(length: int, first: int = 10) -> list[int]:
    return list(range(first, first + length))


def test_the_youngest_of_the_least_urgent_is_preempted() -> None:
    driver = Driver(small_config(prefix_caching=False), 15)
    for index, priority in ((1, 0), (2, 1), (3, 0), (4, 1)):
        driver.add(request(index, prompt(7), priority=priority, **LONG))
    left = []
    while driver.scheduler.has_unfinished() and len(left) < 2:
        preempted = driver.scheduler.stats().preemptions
        driver.step()
        if driver.scheduler.stats().preemptions > preempted:
            state = driver.scheduler._state
            left.append(state.rows.ids[state.rows.order].tolist())
    assert left == [[1, 3, 2], [1, 3]]
    driver.run()
    driver.check_quiet()
    assert all(len(client.tokens) == 30 for client in driver.clients.values())


def test_a_preempted_request_comes_back_first_and_with_its_tokens() -> None:
    driver = Driver(small_config(prefix_caching=False), 11)
    for index in (1, 2):
        driver.add(request(index, prompt(15), max_tokens=20, ignore_eos=True))
    while not driver.scheduler.stats().preemptions:
        driver.step()
    driver.add(request(3, prompt(2), **LONG))
    produced = list(driver.clients[2].tokens)
    message = driver.step()
    while message is None or not message.new:
        message = driver.step()
    back, _ = message.new
    assert (back.sampling.seed, back.prompt_len, back.generation) == (2, 15, 2)
    assert unpack_i32(back.tokens).tolist() == prompt(15) + produced
    assert len(produced) > 0
    driver.run()
    driver.check_quiet()


def test_an_urgent_request_may_take_the_place_of_the_preempted() -> None:
    driver = Driver(small_config(rows=2, prefix_caching=False), 11)
    for index in (1, 2):
        driver.add(request(index, prompt(15), max_tokens=20, ignore_eos=True))
    driver.step()
    driver.add(request(3, prompt(2), max_tokens=20, ignore_eos=True, priority=-1))
    message = driver.step()
    while message is None or not message.new:
        message = driver.step()
    assert driver.scheduler.stats().preemptions == 1
    assert message.new[0].sampling.seed == 3 and message.finished == pack_i32([1])
    driver.run()
    driver.check_quiet()
