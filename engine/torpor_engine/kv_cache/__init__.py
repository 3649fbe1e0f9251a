"""The KV cache seen from the engine: which block belongs to whom. The bytes are the workers'."""

from __future__ import annotations

from torpor_engine.kv_cache.manager import KVCacheManager

__all__ = ["KVCacheManager"]
