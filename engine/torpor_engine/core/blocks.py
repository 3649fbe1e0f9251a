"""How many KV blocks a group has: pure arithmetic over what its ranks report."""

from __future__ import annotations

from torpor_protocol.config import EngineConfig, KVCacheSpec
from torpor_protocol.errors import MemoryBudgetError

NULL_BLOCKS = 1


def plan_blocks(config: EngineConfig, specs: list[KVCacheSpec], available: list[int]) -> int:
    """Blocks per rank, the null block included: the least that any rank can hold.

    ``available``: bytes for the KV cache on each rank. Raises MemoryBudgetError when not even one
    request of the maximum length fits; the message names the largest length that does."""
    size = config.cache.block_size
    blocks = min(memory // spec.page_bytes for spec, memory in zip(specs, available, strict=True))
    length = config.model.max_model_len
    wanted = -(-length // size) + NULL_BLOCKS
    if blocks >= wanted:
        return min(blocks, NULL_BLOCKS + config.scheduler.max_num_seqs * (wanted - NULL_BLOCKS))
    fits = max(blocks - NULL_BLOCKS, 0) * size
    needed = wanted * max(spec.page_bytes for spec in specs)
    raise MemoryBudgetError(
        f"The KV cache of one request of {length} tokens takes {needed / 2**20:.0f} MiB on a rank, "
        f"but {min(available) / 2**20:.0f} MiB are there for it.",
        f"Use --max-model-len {fits} or less, or a larger --kv-cache-memory."
        if fits
        else "Use a larger --kv-cache-memory.",
    )
