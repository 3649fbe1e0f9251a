"""Block tables of all rows, and the rules by which they grow, share and end.

A request gets the blocks of everything it has when it is admitted; from then on it needs one block
more each time its decode crosses a block boundary. Full blocks may be shared, and are never written
again; the block that is being written belongs to one table only.
"""

from __future__ import annotations

import numpy as np

from torpor_engine.kv_cache.block_pool import BlockPool
from torpor_engine.kv_cache.prefix_cache import NoPrefixCache, PrefixCache, PrefixIndex
from torpor_protocol.arrays import I32Array
from torpor_protocol.config import CacheConfig


class KVCacheManager:
    """``tables`` int32 [rows, blocks of max_model_len], ``counts`` and ``capacity`` (tokens that
    the blocks of a row hold) int32 [rows]. ``queries``/``hits`` count tokens of admitted requests
    since the manager was made."""

    def __init__(
        self, config: CacheConfig, num_rows: int, max_model_len: int, num_blocks: int
    ) -> None:
        self.block_size = config.block_size
        self.tables: I32Array = np.zeros((num_rows, self.blocks_for(max_model_len)), np.int32)
        self.counts: I32Array = np.zeros(num_rows, np.int32)
        self.capacity: I32Array = np.zeros(num_rows, np.int32)
        self.pool = BlockPool(num_blocks)
        self.queries = 0
        self.hits = 0
        self._published: I32Array = np.zeros(num_rows, np.int32)
        self._index: PrefixIndex = (
            PrefixCache(config.block_size) if config.prefix_caching else NoPrefixCache()
        )

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    @property
    def max_tokens(self) -> int:
        """Tokens that a request alone in the cache can have."""
        return self.pool.usable * self.block_size

    @property
    def available(self) -> int:
        return self.pool.available

    @property
    def usage(self) -> float:
        """Blocks in use, 0..1."""
        return self.pool.num_used / self.pool.usable if self.pool.usable else 0.0

    def lookup(
        self, tokens: I32Array, salt: str = "", hashes: list[bytes] | None = None
    ) -> tuple[int, list[int]]:
        """How many leading tokens are in the cache already (always fewer than there are), and in
        which blocks. ``hashes``: the request's memory of its block hashes, extended in place."""
        blocks = self._index.match(self.pool, tokens, salt, [] if hashes is None else hashes)
        return len(blocks) * self.block_size, blocks

    def can_allocate(self, num_tokens: int, cached: list[int], spare: int = 0) -> bool:
        """Whether a request with these cached blocks can have all its blocks, and ``spare`` more
        stay available."""
        wanted = self.blocks_for(num_tokens) - len(cached) + spare
        return wanted <= self.pool.available - self.pool.idle_among(cached)

    def allocate(self, row: int, num_tokens: int, cached: list[int]) -> I32Array:
        """Give a row its blocks: the cached ones, then fresh ones. Returns its table. The caller
        has asked ``can_allocate``."""
        count = self.blocks_for(num_tokens)
        self.pool.touch(cached)
        self.tables[row, : len(cached)] = cached
        self.tables[row, len(cached) : count] = self.pool.allocate(count - len(cached))
        self._set_count(row, count)
        self._published[row] = len(cached)
        self.queries += num_tokens
        self.hits += len(cached) * self.block_size
        return self.tables[row, :count]

    def grow(self, rows: I32Array) -> I32Array:
        """One block more for each of these different rows; returns the blocks, in their order.
        The caller has checked ``available``."""
        blocks = self.pool.allocate(len(rows))
        self.tables[rows, self.counts[rows]] = blocks
        self.counts[rows] += 1
        self.capacity[rows] += self.block_size
        return blocks

    def publish(self, row: int, tokens: I32Array, salt: str, hashes: list[bytes]) -> None:
        """Make the full blocks of a row known; ``tokens`` are those that have been computed."""
        full = len(tokens) // self.block_size
        if full > self._published[row]:
            fresh = self.tables[row, self._published[row] : full]
            self._index.publish(self.pool, fresh, tokens, salt, hashes)
            self._published[row] = full

    def free(self, row: int) -> None:
        """Take a row's blocks away, the last first: the tail of a sequence is evicted before its
        head, without which it would be worthless."""
        self.pool.release(self.tables[row, : self.counts[row]][::-1])
        self._set_count(row, 0)

    def reset(self, num_blocks: int) -> None:
        """The cache has lost its content (sleep, recovery): every block is free and unknown."""
        self.pool = BlockPool(num_blocks)
        self.counts[:] = 0
        self.capacity[:] = 0
        self._published[:] = 0

    def _set_count(self, row: int, count: int) -> None:
        self.counts[row] = count
        self.capacity[row] = count * self.block_size
