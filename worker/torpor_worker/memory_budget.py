"""How many bytes of KV cache a rank offers. Pure arithmetic over what was measured."""

from __future__ import annotations

from torpor_protocol.config import EngineConfig, KVCacheSpec

# Of the memory that is free once the model is loaded and its largest batch has run. A CPU's is
# shared with the engine, the page cache and everybody else; a device is the rank's own.
CPU_SHARE = 0.4
DEVICE_SHARE = 0.9


def useful_bytes(config: EngineConfig, spec: KVCacheSpec) -> int:
    """Enough for as many requests as there are rows, each of the maximum length."""
    blocks = -(-config.model.max_model_len // spec.block_size)
    return (config.scheduler.max_num_seqs * blocks + 1) * spec.page_bytes


def kv_cache_bytes(
    config: EngineConfig, spec: KVCacheSpec, available: int, local_size: int, device_type: str
) -> int:
    """``available``: bytes free now; ``local_size``: ranks that share them on a CPU."""
    if config.cache.kv_cache_memory:
        return config.cache.kv_cache_memory
    if device_type == "cpu":
        offered = int(available * CPU_SHARE / local_size)
    else:
        offered = int(available * DEVICE_SHARE)
    return min(offered, useful_bytes(config, spec))
