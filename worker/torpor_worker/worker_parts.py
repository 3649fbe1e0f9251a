"""What a worker is put together from at start-up, and the arithmetic of putting it together."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torpor_protocol.config import EngineConfig, MemoryReport
from torpor_protocol.errors import TorporError
from torpor_worker.attention.base import AttentionBackend, AttentionShape
from torpor_worker.layers.sharding import split
from torpor_worker.memory import KV_CACHE, WEIGHTS, MemoryPool
from torpor_worker.models.base import ShardedModel
from torpor_worker.models.cache_spec import get_kv_cache_spec
from torpor_worker.parallel import ParallelGroups
from torpor_worker.platforms import Platform, torch_dtype
from torpor_worker.runner.interface import Runner, RunnerParts
from torpor_worker.runner.select import RunnerChoice, make_runner
from torpor_worker.sleeper import Sleeper


class WorkerNotReady(TorporError):
    """A method was called before the one it builds on."""


@dataclass(frozen=True, slots=True)
class Place:
    """What ``init_device`` makes."""

    platform: Platform
    groups: ParallelGroups
    device: torch.device
    choice: RunnerChoice


@dataclass(frozen=True, slots=True)
class Loaded:
    """What ``load_model`` makes; the attention backend has no cache before ``initialize_cache``."""

    model: ShardedModel
    attention: AttentionBackend
    sleeper: Sleeper


def attention_shape(config: EngineConfig, place: Place) -> AttentionShape:
    """This rank's heads and layers."""
    spec = get_kv_cache_spec(config, place.groups)
    heads = split(config.model.num_heads, place.groups.tp_size, place.groups.tp_rank)
    return AttentionShape(
        num_layers=spec.num_layers,
        num_heads=heads.size,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        block_size=spec.block_size,
        max_model_len=config.model.max_model_len,
        dtype=torch_dtype(spec.dtype),
        device=place.device,
    )


def assemble_runner(
    config: EngineConfig,
    place: Place,
    model: ShardedModel,
    attention: AttentionBackend,
    cache_blocks: int,
) -> Runner:
    """``attention`` has ``cache_blocks`` blocks allocated."""
    parts = RunnerParts(
        config=config,
        groups=place.groups,
        model=model,
        attention=attention,
        cache_blocks=cache_blocks,
        dtype=torch_dtype(config.model.dtype),
        device=place.device,
    )
    return make_runner(place.choice.name, parts)


def on_device(device: torch.device, size: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Memory outside the pools, for a cache that does not stay."""
    return torch.empty(size, dtype=dtype, device=device)


def memory_report(platform: Platform, rank: int, pid: int, freed: int) -> MemoryReport:
    pool = platform.pool()
    return MemoryReport(
        rank=rank,
        pid=pid,
        resident=platform.resident(),
        weights=_held(pool, WEIGHTS),
        kv_cache=_held(pool, KV_CACHE),
        freed=freed,
    )


def _held(pool: MemoryPool, tag: str) -> int:
    """Bytes of a tag that are backed by memory."""
    return 0 if pool.is_released(tag) else pool.bytes(tag)
