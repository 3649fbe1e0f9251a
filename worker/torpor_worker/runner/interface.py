"""What the worker asks of a runner, and what every runner is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from torpor_protocol.config import EngineConfig
from torpor_protocol.steps import ModelRunnerOutput, SchedulerOutput
from torpor_worker.attention.base import AttentionBackend
from torpor_worker.models.base import ShardedModel
from torpor_worker.parallel.groups import ParallelGroups
from torpor_worker.runner.states import RowLimits


def row_limits(config: EngineConfig) -> RowLimits:
    """Sizes of a runner's arrays."""
    return RowLimits(
        max_num_seqs=config.scheduler.max_num_seqs,
        max_model_len=config.model.max_model_len,
        max_num_batched_tokens=config.scheduler.max_num_batched_tokens,
        block_size=config.cache.block_size,
        vocab_size=config.model.vocab_size,
    )


@dataclass(frozen=True, slots=True)
class RunnerParts:
    """``cache_blocks``: blocks that ``attention`` has allocated."""

    config: EngineConfig
    groups: ParallelGroups
    model: ShardedModel
    attention: AttentionBackend
    cache_blocks: int
    dtype: torch.dtype
    device: torch.device

    @property
    def limits(self) -> RowLimits:
        return row_limits(self.config)

    @property
    def samples_here(self) -> bool:
        """Whether this is the rank that samples."""
        return self.groups.rank == self.config.parallel.output_rank


class Runner(Protocol):
    """``execute_model`` and ``sample_tokens`` alternate. All ranks run both for every step."""

    name: str

    def execute_model(self, output: SchedulerOutput) -> None:
        """Take in the step's differences and run the model. Raises StepRefused, with nothing
        changed, when the step does not fit the rows."""

    def sample_tokens(self) -> ModelRunnerOutput | None:
        """Tokens of the step; None on every rank but the output rank."""

    def reset(self) -> None:
        """Free every row."""
