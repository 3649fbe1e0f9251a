"""The model runner: from a step's differences to tokens.

Style contract. This file holds what every model and every step needs, in the order in which it
happens, and nothing else; what is rare lives in a sibling and costs nothing when it is not used.
Nothing here loops over requests but the joining of new ones, and nothing waits for the device but
``HostCopy.wait``. Both are tested. At most 200 lines.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torpor_protocol.arrays import EMPTY, pack_i32
from torpor_protocol.steps import ModelRunnerOutput, SchedulerOutput
from torpor_worker.runner.errors import StepRefused
from torpor_worker.runner.host_copy import HostCopy
from torpor_worker.runner.input_batch import InputBatch, prepare_inputs
from torpor_worker.runner.interface import RunnerParts
from torpor_worker.runner.states import RequestStates
from torpor_worker.runner.step_check import Step, check_step
from torpor_worker.sampling.logprobs import LogprobRequest
from torpor_worker.sampling.sampler import Sampler


@dataclass(frozen=True, slots=True)
class _Pending:
    """A step between its two halves. ``batch`` is None when nothing was scheduled; ``hidden`` are
    the rows to sample from, [m, hidden]."""

    step: int
    batch: InputBatch | None
    hidden: Tensor | None


class ModelRunner:
    """Persistent rows, one step at a time. The sampler exists on every rank, because it is small;
    only the output rank's is told of requests."""

    name = "v2"

    def __init__(self, parts: RunnerParts) -> None:
        self._parts = parts
        self._groups = parts.groups
        self._model = parts.model
        self._hidden_size = parts.config.model.hidden_size
        self._output_rank = parts.config.parallel.output_rank
        limits = parts.limits
        self.states = RequestStates(limits, parts.device)
        self.states.cache_blocks = parts.cache_blocks
        self.sampler = Sampler(
            limits.max_num_seqs,
            limits.vocab_size,
            parts.config.model.eos_token_ids,
            parts.device,
        )
        self._pending: _Pending | None = None

    # The first half: differences, inputs, forward

    @torch.inference_mode()
    def execute_model(self, output: SchedulerOutput) -> None:
        """See ``Runner``."""
        if self._pending is not None:
            raise StepRefused(f"Step {self._pending.step} has not been sampled.")
        step = check_step(output, self.states)
        self._apply_differences(step)
        if not len(step.rows):
            self._pending = _Pending(step.step, None, None)
            return
        batch = prepare_inputs(step, self.states)
        hidden = self._forward(batch)
        self._pending = _Pending(step.step, batch, _rows_to_sample(hidden, batch))

    def _apply_differences(self, step: Step) -> None:
        """Freed rows first, because a new request may take one of them; all ranks in one order."""
        self.states.finish(step.finished)
        for request in step.new:
            self.states.add(request)
            if self._parts.samples_here:
                self.sampler.add(request)
        self.states.append_blocks(step.block_rows, step.block_counts, step.block_ids)
        self.states.apply_staged()
        if step.new:
            self.sampler.publish()

    def _forward(self, batch: InputBatch) -> Tensor:
        """[tokens, hidden] of this stage, sent on where there is a next one."""
        groups = self._groups
        run = self._parts.attention.plan(batch.attention)
        if groups.is_first_stage:
            hidden = self._model(batch.input_ids, batch.positions, run)
        else:
            shape = (len(batch.positions), self._hidden_size)
            received = groups.recv_previous(shape, self._parts.dtype)
            hidden = self._model(None, batch.positions, run, received)
        if not groups.is_last_stage:
            groups.send_next(hidden)
        return hidden  # type: ignore[no-any-return]

    # The second half: logits, tokens, state

    @torch.inference_mode()
    def sample_tokens(self) -> ModelRunnerOutput | None:
        """See ``Runner``."""
        pending, self._pending = self._pending, None
        if pending is None:
            raise StepRefused("There is no step to sample from.")
        batch = pending.batch
        if batch is None or pending.hidden is None:
            return self._nothing_sampled(pending.step)
        self.states.num_computed[batch.rows] += batch.num_tokens
        if not len(batch.sampling):
            return self._nothing_sampled(pending.step)
        tokens, logprobs = self._sample(pending.hidden, batch)
        tokens = self._groups.world_broadcast(tokens, self._output_rank)
        copy = HostCopy(_packed(tokens, logprobs)) if self._parts.samples_here else None
        rows = batch.sampling
        self.states.append_tokens(rows.host, rows.device, rows.positions, tokens)
        return None if copy is None else _output(batch, copy, logprobs)

    def _sample(self, hidden: Tensor, batch: InputBatch) -> tuple[Tensor, LogprobRequest | None]:
        """Tokens int64 [m]: real on the output rank, room for them on the others."""
        logits = self._model.compute_logits(hidden) if self._groups.is_last_stage else None
        if logits is None or not self._parts.samples_here:
            return torch.empty_like(batch.logits_index), None
        sampled = self.sampler.sample(logits.contiguous(), batch.sampling)
        return sampled.tokens, sampled.logprobs

    def _nothing_sampled(self, step: int) -> ModelRunnerOutput | None:
        if not self._parts.samples_here:
            return None
        return ModelRunnerOutput(step=step, rows=EMPTY, tokens=EMPTY)

    def reset(self) -> None:
        """See ``Runner``."""
        self._pending = None
        self.states.reset()
        self.sampler.reset()


def _rows_to_sample(hidden: Tensor, batch: InputBatch) -> Tensor:
    """[m, hidden]; in a step of decodes that is all there is."""
    if len(batch.logits_index) == len(hidden):
        return hidden
    return hidden.index_select(0, batch.logits_index)


def _packed(tokens: Tensor, logprobs: LogprobRequest | None) -> Tensor:
    """Everything that the host wants, in one int32 tensor."""
    small = tokens.to(torch.int32)
    return small if logprobs is None else torch.cat((small, logprobs.pack(tokens)))


def _output(
    batch: InputBatch, copy: HostCopy, logprobs: LogprobRequest | None
) -> ModelRunnerOutput:
    """Wait for the copy."""
    data, count = copy.wait(), len(batch.sampling)
    tokens = data[:count]
    return ModelRunnerOutput(
        step=batch.step,
        rows=pack_i32(batch.sampling.host.astype("<i4")),
        tokens=pack_i32(tokens),
        logprobs=[] if logprobs is None else logprobs.unpack(tokens, data[count:]),
    )
