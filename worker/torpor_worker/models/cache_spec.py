"""The KV cache that one rank needs for its layers and heads."""

from __future__ import annotations

from torpor_protocol.config import EngineConfig, KVCacheSpec
from torpor_worker.layers.sharding import split_kv_heads
from torpor_worker.parallel.groups import ParallelGroups
from torpor_worker.parallel.stages import stage_layers
from torpor_worker.platforms.base import torch_dtype


def get_kv_cache_spec(config: EngineConfig, groups: ParallelGroups) -> KVCacheSpec:
    """``page_bytes``: keys and values of one block of tokens in all layers of this rank."""
    model, block_size = config.model, config.cache.block_size
    layers = len(stage_layers(model.num_layers, groups.pp_size, groups.pp_rank))
    heads = split_kv_heads(model.num_kv_heads, groups.tp_size, groups.tp_rank).size
    token = 2 * layers * heads * model.head_dim * torch_dtype(model.dtype).itemsize
    return KVCacheSpec(
        num_layers=layers,
        num_kv_heads=heads,
        head_dim=model.head_dim,
        block_size=block_size,
        dtype=model.dtype,
        page_bytes=block_size * token,
    )
