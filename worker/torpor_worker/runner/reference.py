"""The reference runner: every input is made anew each step, from lists, row by row.

The oracle in tests, the fallback where the runner's needs are not met, and the other side of the
benchmark. It shares the interface, the model and nothing else with ``model_runner``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from torpor_protocol.arrays import pack_i32, unpack_i32
from torpor_protocol.requests import SamplingParams, TokenLogprobs
from torpor_protocol.steps import ModelRunnerOutput, SchedulerOutput
from torpor_worker.attention.base import AttentionBatch
from torpor_worker.runner.errors import StepRefused
from torpor_worker.runner.interface import RunnerParts
from torpor_worker.sampling.reference import logprobs_of, sample_row


@dataclass
class _Request:
    row: int
    generation: int
    prompt_len: int
    computed: int
    tokens: list[int]
    blocks: list[int]
    sampling: SamplingParams


@dataclass
class _Scheduled:
    request: _Request
    count: int


@dataclass
class _Pending:
    step: int
    hidden: list[Tensor] = field(default_factory=list)
    sampling: list[_Request] = field(default_factory=list)


class ReferenceRunner:
    name = "reference"

    def __init__(self, parts: RunnerParts) -> None:
        self._parts = parts
        self._requests: dict[int, _Request] = {}
        self._seen: dict[int, int] = {}
        self._pending: _Pending | None = None

    @torch.inference_mode()
    def execute_model(self, output: SchedulerOutput) -> None:
        """See ``Runner``; of what may be wrong with a step only stale rows are noticed, some of
        them after the step's differences were taken in."""
        if self._pending is not None:
            raise StepRefused(f"Step {self._pending.step} has not been sampled.")
        self._take_in(output)
        scheduled = self._scheduled(output)
        pending = _Pending(output.step)
        if scheduled:
            hidden = self._forward(scheduled)
            last = -1
            for entry in scheduled:
                last += entry.count
                entry.request.computed += entry.count
                if entry.request.computed == len(entry.request.tokens):
                    pending.hidden.append(hidden[last])
                    pending.sampling.append(entry.request)
        self._pending = pending

    def _take_in(self, output: SchedulerOutput) -> None:
        for row in unpack_i32(output.finished).tolist():
            if self._requests.pop(row, None) is None:
                raise StepRefused(f"Row {row} is free, but the step frees it.")
        for new in output.new:
            if new.row in self._requests or new.generation <= self._seen.get(new.row, -1):
                raise StepRefused(f"Row {new.row} is taken, or its generation is old.")
            self._seen[new.row] = new.generation
            self._requests[new.row] = _Request(
                new.row,
                new.generation,
                new.prompt_len,
                new.num_computed,
                unpack_i32(new.tokens).tolist(),
                unpack_i32(new.blocks).tolist(),
                new.sampling,
            )
        blocks = unpack_i32(output.block_ids).tolist()
        counts = unpack_i32(output.block_counts).tolist()
        for row, count in zip(unpack_i32(output.block_rows).tolist(), counts, strict=True):
            self._requests[row].blocks += blocks[:count]
            blocks = blocks[count:]

    def _scheduled(self, output: SchedulerOutput) -> list[_Scheduled]:
        entries = []
        for row, generation, count in zip(
            unpack_i32(output.rows).tolist(),
            unpack_i32(output.generations).tolist(),
            unpack_i32(output.num_tokens).tolist(),
            strict=True,
        ):
            request = self._requests.get(row)
            if request is None or request.generation != generation:
                raise StepRefused(f"Row {row} is free, or at another generation.")
            entries.append(_Scheduled(request, count))
        return entries

    def _forward(self, scheduled: list[_Scheduled]) -> Tensor:
        groups, device = self._parts.groups, self._parts.device
        tokens: list[int] = []
        positions: list[int] = []
        for entry in scheduled:
            start = entry.request.computed
            tokens += entry.request.tokens[start : start + entry.count]
            positions += range(start, start + entry.count)
        where = torch.tensor(positions, device=device)
        run = self._parts.attention.plan(self._attention_batch(scheduled))
        hidden: Tensor
        if groups.is_first_stage:
            hidden = self._parts.model(torch.tensor(tokens, device=device), where, run)
        else:
            shape = (len(tokens), self._parts.config.model.hidden_size)
            received = groups.recv_previous(shape, self._parts.dtype)
            hidden = self._parts.model(None, where, run, received)
        if not groups.is_last_stage:
            groups.send_next(hidden)
        return hidden

    def _attention_batch(self, scheduled: list[_Scheduled]) -> AttentionBatch:
        size, device = self._parts.config.cache.block_size, self._parts.device
        slots: list[int] = []
        for entry in scheduled:
            request = entry.request
            places = range(request.computed, request.computed + entry.count)
            slots += [request.blocks[place // size] * size + place % size for place in places]
        widest = max(len(entry.request.blocks) for entry in scheduled)
        tables = [
            entry.request.blocks + [0] * (widest - len(entry.request.blocks)) for entry in scheduled
        ]
        counts = [entry.count for entry in scheduled]
        lengths = np.array([e.request.computed + e.count for e in scheduled], np.int64)
        starts = np.cumsum([0, *counts]).astype(np.int64)
        return AttentionBatch(
            num_decodes=counts.count(1),
            query_lens=np.array(counts, np.int64),
            seq_lens=lengths,
            query_start=starts,
            seq_lens_device=torch.from_numpy(lengths).to(device),
            query_start_device=torch.from_numpy(starts).to(device),
            block_tables=torch.tensor(tables, dtype=torch.int32, device=device),
            slot_mapping=torch.tensor(slots, device=device),
        )

    @torch.inference_mode()
    def sample_tokens(self) -> ModelRunnerOutput | None:
        """See ``Runner``."""
        pending, self._pending = self._pending, None
        if pending is None:
            raise StepRefused("There is no step to sample from.")
        tokens: list[int] = []
        logprobs: list[TokenLogprobs] = []
        if pending.sampling:
            tokens, logprobs = self._sample(pending)
            for request, token in zip(pending.sampling, tokens, strict=True):
                request.tokens.append(token)
        if not self._parts.samples_here:
            return None
        rows = [request.row for request in pending.sampling]
        return ModelRunnerOutput(pending.step, pack_i32(rows), pack_i32(tokens), logprobs)

    def _sample(self, pending: _Pending) -> tuple[list[int], list[TokenLogprobs]]:
        groups, model = self._parts.groups, self._parts.model
        tokens: list[int] = [0] * len(pending.sampling)
        logprobs: list[TokenLogprobs] = []
        hidden = torch.stack(pending.hidden)
        logits = model.compute_logits(hidden) if groups.is_last_stage else None
        if logits is not None and self._parts.samples_here:
            tokens = []
            for request, row in zip(pending.sampling, logits.tolist(), strict=True):
                tokens.append(self._sample_request(request, row))
                if request.sampling.logprobs >= 0:
                    wanted = request.sampling.logprobs
                    logprobs.append(logprobs_of(request.row, row, tokens[-1], wanted))
        sent = torch.tensor(tokens, device=self._parts.device)
        output_rank = self._parts.config.parallel.output_rank
        return groups.world_broadcast(sent, output_rank).tolist(), logprobs

    def _sample_request(self, request: _Request, logits: list[float]) -> int:
        return sample_row(
            logits,
            request.sampling,
            request.tokens[: request.prompt_len],
            request.tokens[request.prompt_len :],
            self._parts.config.model.eos_token_ids,
        )

    def reset(self) -> None:
        """See ``Runner``."""
        self._pending = None
        self._requests.clear()
        self._seen.clear()
