"""Runners over a tiny model, ready to run steps."""

from __future__ import annotations

from pathlib import Path

import msgspec
import torch

from step_maker import StepMaker
from torpor_protocol.config import EngineConfig, SchedulerConfig
from torpor_worker.attention.base import AttentionShape
from torpor_worker.attention.select import make_attention
from torpor_worker.loader import load_weights
from torpor_worker.memory.cpu import CpuMemoryPool
from torpor_worker.models import build_model
from torpor_worker.models.base import ShardedModel
from torpor_worker.parallel.groups import SingleRank
from torpor_worker.runner.interface import Runner, RunnerParts
from torpor_worker.runner.select import make_runner
from worker_configs import engine_config

ROWS, BLOCKS, BLOCK_SIZE, BUDGET = 4, 200, 4, 48


def small_config(folder: Path, rows: int = ROWS, budget: int = BUDGET) -> EngineConfig:
    config = engine_config(folder, block_size=BLOCK_SIZE)
    scheduler = SchedulerConfig(max_num_seqs=rows, max_num_batched_tokens=budget)
    return msgspec.structs.replace(config, scheduler=scheduler)


def loaded_model(config: EngineConfig) -> ShardedModel:
    groups = SingleRank()
    model = build_model(config, groups, CpuMemoryPool())
    load_weights(model, config, groups)
    return model


def runner_of(
    config: EngineConfig, model: ShardedModel, name: str = "v2", attention: str = "cpu"
) -> Runner:
    """A runner with a cache of its own."""
    sizes = config.model
    shape = AttentionShape(
        sizes.num_layers,
        sizes.num_heads,
        sizes.num_kv_heads,
        sizes.head_dim,
        config.cache.block_size,
        sizes.max_model_len,
        torch.float32,
        torch.device("cpu"),
    )
    backend = make_attention(attention, shape)
    backend.allocate(BLOCKS, lambda size, dtype: torch.empty(size, dtype=dtype))
    return make_runner(
        name,
        RunnerParts(
            config, model.groups, model, backend, BLOCKS, torch.float32, torch.device("cpu")
        ),
    )


def maker_of(config: EngineConfig) -> StepMaker:
    return StepMaker(config.scheduler.max_num_seqs, BLOCKS, config.cache.block_size)
