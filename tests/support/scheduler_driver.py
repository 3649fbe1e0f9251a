"""Drive a scheduler against the hash model, and check what its clients see."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec
import numpy as np

from engine_builders import engine_config
from hash_model import HashRunner, expected
from torpor_engine.scheduler import Scheduler
from torpor_protocol.arrays import pack_i32, unpack_i32, unpack_i64
from torpor_protocol.config import EngineConfig
from torpor_protocol.requests import AddRequest, Finished, SamplingParams, StepOutputs
from torpor_protocol.steps import ModelRunnerOutput, SchedulerOutput


def small_config(
    *,
    chunked: bool = True,
    prefix_caching: bool = True,
    block_size: int = 4,
    rows: int = 4,
    budget: int = 32,
    max_model_len: int = 64,
    vocab_size: int = 1024,
    eos: tuple[int, ...] = (2,),
) -> EngineConfig:
    config = engine_config(
        max_num_seqs=rows,
        max_num_batched_tokens=budget,
        block_size=block_size,
        model={
            "max_model_len": max_model_len,
            "vocab_size": vocab_size,
            "eos_token_ids": eos,
        },
    )
    replace = msgspec.structs.replace
    return replace(
        config,
        cache=replace(config.cache, prefix_caching=prefix_caching),
        scheduler=replace(config.scheduler, chunked_prefill=chunked),
    )


def request(request_id: int, prompt: list[int], **fields: Any) -> AddRequest:
    """``priority`` and ``cache_salt`` go to the request, everything else to its sampling."""
    outer = {key: fields.pop(key) for key in ("priority", "cache_salt") if key in fields}
    sampling = SamplingParams(**({"max_tokens": 8, "seed": request_id} | fields))
    return AddRequest(request_id, pack_i32(prompt), sampling, **outer)


class Client:
    """What one client has received."""

    def __init__(self, request: AddRequest) -> None:
        self.request = request
        self.tokens: list[int] = []
        self.logprobs: list[int] = []
        self.cached = -1
        self.end: Finished | None = None


class Driver:
    """``fly`` schedules and executes a step, ``land`` hands its result back; ``step`` does both."""

    def __init__(self, config: EngineConfig, num_blocks: int) -> None:
        self.config = config
        self.num_blocks = num_blocks
        self.scheduler = Scheduler(config, num_blocks)
        self.runner = HashRunner(config, num_blocks)
        self.clients: dict[int, Client] = {}
        self.flights: deque[tuple[SchedulerOutput, ModelRunnerOutput]] = deque()

    def add(self, request: AddRequest) -> Client:
        client = self.clients[request.id] = Client(request)
        self.scheduler.add(request)
        return client

    def abort(self, *ids: int) -> None:
        self._end(self.scheduler.abort(ids))

    def fly(self) -> SchedulerOutput | None:
        message = self.scheduler.schedule()
        if message is not None:
            self.flights.append((message, self.runner.execute(message)))
        return message

    def land(self) -> StepOutputs:
        outputs = self.scheduler.update(*self.flights.popleft())
        for started in outputs.started:
            client = self.clients[started.id]
            assert client.cached == -1, f"request {started.id} starts twice"
            client.cached = started.cached_tokens
        ids, tokens = unpack_i64(outputs.ids).tolist(), unpack_i32(outputs.tokens).tolist()
        for request_id, token in zip(ids, tokens, strict=True):
            client = self.clients[request_id]
            assert client.end is None and client.cached >= 0, f"{request_id} is not running"
            client.tokens.append(token)
        for item in outputs.logprobs:
            self.clients[item.row].logprobs.append(item.token)
        self._end(outputs.finished)
        return outputs

    def step(self) -> SchedulerOutput | None:
        message = self.fly()
        if message is None:
            self._end(self.scheduler.take_finished())
        else:
            self.land()
        return message

    def run(self, limit: int = 10_000) -> None:
        """Until nothing is left to do."""
        while self.flights:
            self.land()
        while self.scheduler.has_unfinished():
            assert limit > 0, "the scheduler does not come to an end"
            self.step()
            limit -= 1

    def lose_group(self, num_blocks: int | None = None) -> None:
        """All ranks die, whatever was in flight, and new ones take their place."""
        self.flights.clear()
        self.scheduler.record_loss()
        self._renew(num_blocks)

    def sleep_and_wake(self, num_blocks: int | None = None) -> None:
        """Sleep mode keep: the step in flight ends, then rows and cache are dropped."""
        while self.flights:
            self.land()
        self.scheduler.preempt_all()
        assert self.scheduler.num_running == 0
        self._renew(num_blocks)

    def _renew(self, num_blocks: int | None) -> None:
        self.num_blocks = num_blocks or self.num_blocks
        self.runner = HashRunner(self.config, self.num_blocks)
        self.scheduler.reset_cache(self.num_blocks)

    def _end(self, finished: list[Finished]) -> None:
        for end in finished:
            assert self.clients[end.id].end is None, f"request {end.id} ends twice"
            self.clients[end.id].end = end

    # Checks

    def check_client(self, client: Client) -> None:
        """What came is what was to come: all of it, or a beginning if it did not end by itself."""
        sampling = client.request.sampling
        wanted = expected(unpack_i32(client.request.prompt).tolist(), sampling, self.config)
        assert client.tokens == wanted.tokens[: len(client.tokens)], f"{client.request.id}"
        assert client.logprobs == (client.tokens if sampling.logprobs >= 0 else [])
        if client.end is not None and client.end.reason in ("stop", "length"):
            assert client.tokens == wanted.tokens
            assert (client.end.reason, client.end.stop_token) == (wanted.reason, wanted.stop)

    def check_quiet(self) -> None:
        """After the last request: everyone has an end, and nothing is kept."""
        state = self.scheduler._state
        for client in self.clients.values():
            assert client.end is not None, f"request {client.request.id} has no end"
            self.check_client(client)
        assert state.kv.pool.num_used == 0 and not state.kv.pool.ref_counts.any()
        assert state.rows.num_free == self.config.scheduler.max_num_seqs
        assert len(state.journal) == len(state.waiting) == 0
        assert not state.quarantine.watching and not self.scheduler._flights
        self.check_consistent()

    def check_consistent(self) -> None:
        """The books agree with each other and with the runner's."""
        state = self.scheduler._state
        pool = state.kv.pool
        assert pool.num_free + pool.num_cached + pool.num_used == pool.usable
        wanted = np.zeros(pool.num_blocks, np.int32)
        running = state.rows.order.tolist()
        for row in running:
            table = state.kv.tables[row, : state.kv.counts[row]]
            wanted[table] += 1
            entry = state.entry_in(row)
            assert entry.row == row
            mirror = self.runner.rows.get(row)
            if mirror is not None and mirror.generation == state.rows.generations[row]:
                assert mirror.blocks == table.tolist()
                assert mirror.computed == state.rows.computed[row]
        assert (pool.ref_counts == wanted).all()
        assert len(set(running)) == len(running) == state.rows.num_running
        assert set(np.flatnonzero(state.rows.in_flight).tolist()) <= set(running)
        assert len(state.journal) == len(running) + len(state.waiting)
        unended = sum(client.end is None for client in self.clients.values())
        assert unended == len(state.journal) + len(state.ended)
