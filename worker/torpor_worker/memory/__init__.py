"""Tagged memory that can be given back and taken again at the same addresses."""

from torpor_worker.memory.pool import KV_CACHE, STAGING, WEIGHTS, MemoryPool

__all__ = ["KV_CACHE", "STAGING", "WEIGHTS", "MemoryPool"]
