"""The scheduler against the hash model, under everything that can happen in any order.

Every request's output is known beforehand, so a lost, doubled or foreign token shows at once; the
runner refuses every message that a real one would refuse; the books are compared after each event.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scheduler_driver import Driver, request, small_config
from torpor_protocol.config import EngineConfig

MAX_IN_FLIGHT = 3

CONFIGS = st.builds(
    small_config,
    chunked=st.booleans(),
    prefix_caching=st.booleans(),
    block_size=st.sampled_from([1, 2, 4, 7]),
    rows=st.sampled_from([1, 2, 5]),
    budget=st.sampled_from([1, 3, 8, 40]),
    max_model_len=st.sampled_from([8, 24]),
    vocab_size=st.sampled_from([5, 40]),
)
# Few different tokens, so that prompts have beginnings in common and blocks are shared.
REQUESTS = st.fixed_dictionaries(
    {
        "prompt": st.lists(st.integers(0, 1), min_size=1, max_size=26),
        "max_tokens": st.integers(1, 20),
        "min_tokens": st.integers(0, 3),
        "ignore_eos": st.booleans(),
        "stop_token_ids": st.sampled_from([(), (), (3,), (1, 3, 4)]),
        "priority": st.integers(-1, 1),
        "logprobs": st.sampled_from([-1, 0]),
        "cache_salt": st.sampled_from(["", "tenant"]),
    }
)


def blocks_for(config: EngineConfig, requests: int) -> int:
    return 1 + requests * -(-config.model.max_model_len // config.cache.block_size)


class SchedulerMachine(RuleBasedStateMachine):
    @initialize(config=CONFIGS, requests=st.sampled_from([0.4, 1, 1.5, 4]))
    def start(self, config: EngineConfig, requests: float) -> None:
        """From a cache that is too small for the longest request to one with room for four."""
        whole = blocks_for(config, 1) - 1
        self.driver = Driver(config, 1 + max(1, int(requests * whole)))
        self.next_id = 0

    @rule(fields=REQUESTS)
    def add(self, fields: dict[str, Any]) -> None:
        fields = dict(fields)
        self.driver.add(request(self.next_id, fields.pop("prompt"), **fields))
        self.next_id += 1

    @precondition(lambda self: self.next_id)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.driver.abort(*data.draw(st.lists(st.integers(0, self.next_id), max_size=3)))

    @precondition(lambda self: len(self.driver.flights) < MAX_IN_FLIGHT)
    @rule()
    def fly(self) -> None:
        self.driver.fly()

    @precondition(lambda self: self.driver.flights)
    @rule()
    def land(self) -> None:
        self.driver.land()

    @precondition(lambda self: not self.driver.flights)
    @rule(steps=st.integers(1, 10))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self.driver.step()

    @rule(percent=st.sampled_from([100, 100, 60, 200]))
    def lose_group(self, percent: int) -> None:
        self.driver.lose_group(1 + max(1, (self.driver.num_blocks - 1) * percent // 100))

    @rule()
    def sleep_and_wake(self) -> None:
        self.driver.sleep_and_wake()

    @invariant()
    def books_agree(self) -> None:
        self.driver.check_consistent()

    @invariant()
    def tokens_are_right(self) -> None:
        for client in self.driver.clients.values():
            self.driver.check_client(client)

    def teardown(self) -> None:
        if hasattr(self, "driver"):
            self.driver.run()
            self.driver.check_quiet()


SchedulerMachine.TestCase.settings = settings(
    max_examples=40, stateful_step_count=50, deadline=None
)
TestSchedulerMachine = SchedulerMachine.TestCase


def simulate(seed: int, events: int) -> Driver:
    """A random life with few faults, so that requests get far between them."""
    draw = random.Random(seed)
    config = small_config(
        chunked=draw.random() < 0.7,
        prefix_caching=draw.random() < 0.7,
        block_size=draw.choice([1, 2, 4, 7]),
        rows=draw.choice([1, 3, 8, 16]),
        budget=draw.choice([2, 8, 40]),
        max_model_len=48,
        vocab_size=draw.choice([30, 400]),
    )
    driver = Driver(config, blocks_for(config, draw.choice([1, 2, 5])))
    faults = draw.choice([0.0, 0.01, 0.05])
    for index in range(events):
        what = draw.random()
        if what < 0.2:
            length = draw.randint(1, 44)
            shared = [5, 6, 7, 8, 9, 10, 11, 12, 13][: draw.randint(0, 9)]
            tokens = (shared + [draw.randint(0, 29) for _ in range(length)])[:length]
            sampling = {"max_tokens": draw.randint(1, 40), "ignore_eos": draw.random() < 0.5}
            driver.add(request(index, tokens, **sampling))
        elif what < 0.2 + faults:
            driver.lose_group()
        elif what < 0.2 + 2 * faults:
            driver.sleep_and_wake()
        elif what < 0.35 and driver.clients and draw.random() < 0.3:
            driver.abort(draw.choice(list(driver.clients)))
        elif driver.flights and (len(driver.flights) == 2 or draw.random() < 0.5):
            driver.land()
        else:
            driver.fly()
        driver.check_consistent()
    driver.run()
    driver.check_quiet()
    return driver


@pytest.mark.parametrize("first", range(0, 24, 8))
def test_no_token_is_lost_doubled_or_foreign(first: int) -> None:
    tokens = preempted = hits = 0
    for seed in range(first, first + 8):
        driver = simulate(seed, events=250)
        stats = driver.scheduler.stats()
        tokens += stats.generation_tokens
        preempted += stats.preemptions
        hits += stats.prefix_hits
    # The lives were worth living: there was something to lose, and something that could be lost.
    assert tokens > 2_000 and preempted > 10 and hits > 100


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 2_000, 100))
def test_no_token_is_lost_doubled_or_foreign_in_many_lives(first: int) -> None:
    for seed in range(first, first + 100):
        simulate(seed, events=400)


def test_the_same_calls_give_the_same_steps() -> None:
    def messages() -> list[object]:
        driver = Driver(small_config(rows=3), 20)
        for index in range(8):
            driver.add(request(index, [index] * (5 + 3 * index), max_tokens=15, priority=index % 2))
        seen: list[object] = []
        while driver.scheduler.has_unfinished():
            seen.append(driver.step())
        return seen

    assert messages() == messages()
