"""A scheduler by hand: makes the messages of steps that a test wants, and keeps the books.

It schedules what it is told; it does not decide. ``generate`` on top of it is the simplest loop
that runs requests to their end on a worker or runner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torpor_protocol.arrays import pack_i32, unpack_i32
from torpor_protocol.requests import SamplingParams, TokenLogprobs
from torpor_protocol.steps import ModelRunnerOutput, NewRequest, SchedulerOutput


class Steps(Protocol):
    """A runner, or a worker."""

    def execute_model(self, output: SchedulerOutput) -> None: ...

    def sample_tokens(self) -> ModelRunnerOutput | None: ...


@dataclass
class Running:
    """A request on its row. ``known``: the worker has been told of it."""

    row: int
    generation: int
    prompt_len: int
    tokens: list[int]
    sampling: SamplingParams
    computed: int
    blocks: list[int]
    known: bool = False
    logprobs: list[TokenLogprobs] = field(default_factory=list)

    @property
    def output(self) -> list[int]:
        return self.tokens[self.prompt_len :]

    @property
    def pending(self) -> int:
        """Tokens that are not in the KV cache yet."""
        return len(self.tokens) - self.computed


class StepMaker:
    def __init__(self, rows: int, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.running: dict[int, Running] = {}
        self._free_rows = list(range(rows))
        self._free_blocks = list(range(num_blocks - 1, 0, -1))
        self._generations = [0] * rows
        self._finished: list[int] = []
        self._step = 0

    @property
    def free_rows(self) -> int:
        return len(self._free_rows)

    def join(
        self,
        prompt: Sequence[int],
        sampling: SamplingParams,
        output: Sequence[int] = (),
        shared_from: Running | None = None,
        shared_tokens: int = 0,
    ) -> Running:
        """Seat a request; ``shared_tokens`` of it are computed already, in blocks that it shares
        with another row (whole blocks only)."""
        row = self._free_rows.pop(0)
        self._generations[row] += 1
        shared = shared_from.blocks[: shared_tokens // self.block_size] if shared_from else []
        request = Running(
            row,
            self._generations[row],
            len(prompt),
            [*prompt, *output],
            sampling,
            len(shared) * self.block_size,
            list(shared),
        )
        self.running[row] = request
        return request

    def leave(self, request: Running) -> None:
        """It ended or was preempted. Its blocks are not used again: sharing stays simple."""
        del self.running[request.row]
        self._free_rows.append(request.row)
        if request.known:
            self._finished.append(request.row)

    def step(self, counts: Mapping[int, int]) -> SchedulerOutput:
        """Compute ``counts[row]`` tokens of each row."""
        order = sorted(counts, key=lambda row: counts[row] > 1)
        new: list[NewRequest] = []
        appended: list[tuple[int, list[int]]] = []
        for row in order:
            request = self.running[row]
            more = self._grow(request, request.computed + counts[row])
            if request.known:
                appended.append((row, more))
            else:
                new.append(self._introduce(request))
            request.computed += counts[row]
        self._step += 1
        finished, self._finished = sorted(self._finished), []
        return SchedulerOutput(
            step=self._step,
            new=new,
            rows=pack_i32(order),
            generations=pack_i32([self.running[row].generation for row in order]),
            num_tokens=pack_i32([counts[row] for row in order]),
            total_tokens=sum(counts.values()),
            block_rows=pack_i32([row for row, more in appended for _ in more]),
            block_counts=pack_i32([1 for _, more in appended for _ in more]),
            block_ids=pack_i32([block for _, more in appended for block in more]),
            finished=pack_i32(finished),
        )

    def _grow(self, request: Running, length: int) -> list[int]:
        missing = -(-length // self.block_size) - len(request.blocks)
        more = [self._free_blocks.pop() for _ in range(missing)]
        request.blocks += more
        return more

    def _introduce(self, request: Running) -> NewRequest:
        request.known = True
        return NewRequest(
            row=request.row,
            generation=request.generation,
            prompt_len=request.prompt_len,
            num_computed=request.computed,
            tokens=pack_i32(request.tokens),
            blocks=pack_i32(request.blocks),
            sampling=request.sampling,
        )

    def take(self, output: ModelRunnerOutput) -> list[int]:
        """Append a step's tokens; the rows that got one."""
        rows: list[int] = unpack_i32(output.rows).tolist()
        for row, token in zip(rows, unpack_i32(output.tokens).tolist(), strict=True):
            assert self.running[row].pending == 0, f"row {row} was not to sample"
            self.running[row].tokens.append(token)
        for entry in output.logprobs:
            self.running[entry.row].logprobs.append(entry)
        return rows


def run_step(steps: Steps, maker: StepMaker, counts: Mapping[int, int]) -> list[int]:
    """One step on one rank."""
    steps.execute_model(maker.step(counts))
    output = steps.sample_tokens()
    assert output is not None
    return maker.take(output)


def greedy(max_tokens: int, **fields: Any) -> SamplingParams:
    values: dict[str, Any] = {"seed": 0, "temperature": 0.0, "ignore_eos": True}
    return SamplingParams(max_tokens=max_tokens, **(values | fields))


def generate(
    steps: Steps,
    maker: StepMaker,
    requests: Sequence[tuple[Sequence[int], SamplingParams]],
    budget: int,
    chunk: int,
) -> list[list[int]]:
    """Run requests to their ends: as many rows as there are, decodes first, prompts in chunks of at
    most ``chunk``, ``budget`` tokens per step. Returns their outputs."""
    waiting = list(enumerate(requests))
    seated: dict[int, int] = {}
    outputs: list[list[int]] = [[] for _ in requests]
    while waiting or maker.running:
        while waiting and maker.free_rows:
            number, (prompt, sampling) = waiting.pop(0)
            seated[maker.join(prompt, sampling).row] = number
        run_step(steps, maker, plan(maker, budget, chunk))
        for row, request in list(maker.running.items()):
            if len(request.output) == request.sampling.max_tokens:
                outputs[seated[row]] = request.output
                maker.leave(request)
    return outputs


def plan(maker: StepMaker, budget: int, chunk: int) -> dict[int, int]:
    """Rows with least to compute first, within the budget."""
    counts: dict[int, int] = {}
    for row, request in sorted(maker.running.items(), key=lambda item: item[1].pending > 1):
        count = min(request.pending, chunk, budget)
        if count:
            counts[row] = count
            budget -= count
    return counts
