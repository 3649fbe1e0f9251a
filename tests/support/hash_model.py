"""A model runner without a model: the next token is a hash of all tokens before it and the seed.

What every request must yield is therefore known without running anything, and a lost, doubled,
swapped or foreign token shows at once. The runner keeps its own mirror of rows, block tables and
cache content, and refuses whatever a real runner would refuse. Its "KV cache" holds in each slot
the chain of all tokens up to that position, so a block that was handed to the wrong request, or
reused while somebody still needs it, is found when it is next read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from torpor_protocol.arrays import pack_i32, unpack_i32
from torpor_protocol.config import EngineConfig
from torpor_protocol.requests import FinishReason, SamplingParams, TokenLogprobs
from torpor_protocol.steps import ModelRunnerOutput, NewRequest, SchedulerOutput

_PRIME = (1 << 61) - 1
_EMPTY_CELL = -1
ROOT = 1


def chain(state: int, token: int) -> int:
    """The state after one token more; a slot of the cache holds the state at its position."""
    return (state * 6_364_136_223_846_793_005 + token + 1_442_695_040_888_963_407) % _PRIME


def draw(
    state: int, position: int, sampling: SamplingParams, config: EngineConfig, out: int
) -> int:
    """The token at ``position``, the ``out``-th output (from 0) of its request."""
    banned: set[int] = set()
    if out < sampling.min_tokens:
        banned = {*config.model.eos_token_ids, *sampling.stop_token_ids}
    token = chain(chain(state, sampling.seed), position) >> 7
    while (token := token % config.model.vocab_size) in banned:
        token += 1
    return token


@dataclass
class Expected:
    """What a client gets: tokens, then the end. ``stop`` -1 where no stop token ended it."""

    tokens: list[int]
    reason: FinishReason
    stop: int


def expected(prompt: list[int], sampling: SamplingParams, config: EngineConfig) -> Expected:
    """The whole output of a request that runs undisturbed."""
    eos = () if sampling.ignore_eos else config.model.eos_token_ids
    stops = {*eos, *sampling.stop_token_ids}
    state = ROOT
    for token in prompt:
        state = chain(state, token)
    tokens: list[int] = []
    while True:
        token = draw(state, len(prompt) + len(tokens), sampling, config, len(tokens))
        if token in stops and len(tokens) >= sampling.min_tokens:
            return Expected(tokens, "stop", token)
        tokens.append(token)
        length = len(prompt) + len(tokens)
        if len(tokens) == sampling.max_tokens or length == config.model.max_model_len:
            return Expected(tokens, "length", -1)
        state = chain(state, token)


@dataclass
class MirrorRow:
    generation: int
    prompt_len: int
    sampling: SamplingParams
    tokens: list[int]
    computed: int
    blocks: list[int]
    states: list[int] = field(default_factory=list)

    def extend_states(self) -> None:
        for token in self.tokens[len(self.states) :]:
            self.states.append(chain(self.states[-1] if self.states else ROOT, token))


class HashRunner:
    """``execute`` raises AssertionError for every message that breaks the contract."""

    def __init__(self, config: EngineConfig, num_blocks: int) -> None:
        self.config = config
        self.block_size = config.cache.block_size
        self.rows: dict[int, MirrorRow] = {}
        self.num_blocks = num_blocks
        self._generations: dict[int, int] = {}
        self._cells = [[_EMPTY_CELL] * self.block_size for _ in range(num_blocks)]

    def execute(self, message: SchedulerOutput) -> ModelRunnerOutput:
        """Run a step as it arrives from the wire."""
        step = msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=SchedulerOutput)
        self._finish(unpack_i32(step.finished).tolist())
        for new in step.new:
            self._join(new)
        self._append_blocks(step)
        rows, counts = self._batch(step)
        self._check_writers(rows, counts)
        sampled = [row for row, count in zip(rows, counts, strict=True) if self._run(row, count)]
        tokens = [self.rows[row].tokens[-1] for row in sampled]
        wanted = [i for i, row in enumerate(sampled) if self.rows[row].sampling.logprobs >= 0]
        logprobs = [
            TokenLogprobs(sampled[i], tokens[i], -0.5, 1, pack_i32([tokens[i]]), [-0.5])
            for i in wanted
        ]
        return ModelRunnerOutput(step.step, pack_i32(sampled), pack_i32(tokens), logprobs)

    def _finish(self, rows: list[int]) -> None:
        assert rows == sorted(set(rows)), f"finished rows {rows} are not in ascending order"
        for row in rows:
            assert row in self.rows, f"row {row} is freed but holds nothing"
            del self.rows[row]

    def _join(self, new: NewRequest) -> None:
        tokens, blocks = unpack_i32(new.tokens).tolist(), unpack_i32(new.blocks).tolist()
        assert 0 <= new.row < self.config.scheduler.max_num_seqs, f"row {new.row} does not exist"
        assert new.row not in self.rows, f"row {new.row} is taken"
        known = self._generations.get(new.row, 0)
        assert new.generation > known, f"generation {new.generation} of row {new.row} is stale"
        assert 0 < new.prompt_len <= len(tokens) < self.config.model.max_model_len
        assert 0 <= new.num_computed < len(tokens), "nothing is left to compute"
        assert new.num_computed % self.block_size == 0, "only full blocks can be cached"
        self._generations[new.row] = new.generation
        row = MirrorRow(new.generation, new.prompt_len, new.sampling, tokens, new.num_computed, [])
        self.rows[new.row] = row
        self._add_blocks(row, blocks)

    def _append_blocks(self, step: SchedulerOutput) -> None:
        rows, counts = unpack_i32(step.block_rows).tolist(), unpack_i32(step.block_counts).tolist()
        ids = unpack_i32(step.block_ids).tolist()
        assert len(rows) == len(counts) == len(set(rows)) and sum(counts) == len(ids)
        for row, count in zip(rows, counts, strict=True):
            self._add_blocks(self.rows[row], ids[:count])
            del ids[:count]

    def _add_blocks(self, row: MirrorRow, blocks: list[int]) -> None:
        row.blocks += blocks
        assert len(set(row.blocks)) == len(row.blocks), f"a block is twice in {row.blocks}"
        assert all(0 < block < self.num_blocks for block in blocks), f"no such block in {blocks}"
        assert len(row.blocks) * self.block_size < self.config.model.max_model_len + self.block_size

    def _batch(self, step: SchedulerOutput) -> tuple[list[int], list[int]]:
        rows, counts = unpack_i32(step.rows).tolist(), unpack_i32(step.num_tokens).tolist()
        generations = unpack_i32(step.generations).tolist()
        assert rows and len(rows) == len(counts) == len(generations) == len(set(rows))
        assert all(count >= 1 for count in counts)
        assert step.total_tokens == sum(counts) <= self.config.scheduler.max_num_batched_tokens
        singles = [count == 1 for count in counts]
        assert singles == sorted(singles, reverse=True), "decodes come first"
        for row, generation in zip(rows, generations, strict=True):
            assert self.rows[row].generation == generation, f"row {row} is of another generation"
        return rows, counts

    def _check_writers(self, rows: list[int], counts: list[int]) -> None:
        """Nobody writes into a block that is in another row's table."""
        owners: dict[int, int] = {}
        for row in self.rows.values():
            for block in row.blocks:
                owners[block] = owners.get(block, 0) + 1
        for index, count in zip(rows, counts, strict=True):
            row = self.rows[index]
            assert row.computed + count <= len(row.tokens), f"row {index} has no such tokens"
            assert row.computed + count <= len(row.blocks) * self.block_size, "too few blocks"
            for position in range(row.computed, row.computed + count):
                block = row.blocks[position // self.block_size]
                assert owners[block] == 1, f"block {block} is written and shared"

    def _run(self, index: int, count: int) -> bool:
        """Attend to the cached slots, fill new ones, and sample if all tokens are computed."""
        row = self.rows[index]
        row.extend_states()
        for position in range(row.computed):
            cell = self._cells[row.blocks[position // self.block_size]][position % self.block_size]
            assert cell == row.states[position], f"row {index} reads foreign KV at {position}"
        for position in range(row.computed, row.computed + count):
            block = self._cells[row.blocks[position // self.block_size]]
            block[position % self.block_size] = row.states[position]
        row.computed += count
        if row.computed < len(row.tokens):
            return False
        length = len(row.tokens)
        out = length - row.prompt_len
        row.tokens.append(draw(row.states[-1], length, row.sampling, self.config, out))
        return True
