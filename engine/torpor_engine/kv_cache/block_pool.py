"""Blocks of the KV cache: free, cached or in use.

A block is in exactly one of three places: on the free stack (its content is worthless), among the
cached (nobody uses it, but its content is known by a hash and may be used again), or in use (its
reference count is above zero). Free blocks are taken before cached ones, and of those the least
recently used is evicted first. Block 0 is the null block: it belongs to nobody and is never given
out, so a zero in a block table is always padding.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from torpor_protocol.arrays import I32Array

NULL_BLOCK = 0


class BlockPool:
    """``num_blocks`` counts the null block. All operations are deterministic."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.ref_counts: I32Array = np.zeros(num_blocks, np.int32)
        self._free = list(range(num_blocks - 1, NULL_BLOCK, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()
        self._hash_of: dict[int, bytes] = {}
        self._block_of: dict[bytes, int] = {}

    @property
    def usable(self) -> int:
        """Blocks that can be given out at all."""
        return self.num_blocks - 1

    @property
    def available(self) -> int:
        """Blocks that ``allocate`` can give out now."""
        return len(self._free) + len(self._cached)

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_cached(self) -> int:
        """Blocks in nobody's use whose content is known."""
        return len(self._cached)

    @property
    def num_used(self) -> int:
        return self.usable - self.available

    def allocate(self, count: int) -> I32Array:
        """Take ``count`` blocks, each with one reference; the caller has checked ``available``."""
        keep = max(len(self._free) - count, 0)
        blocks = self._free[keep:]
        blocks.reverse()
        del self._free[keep:]
        while len(blocks) < count:
            block, _ = self._cached.popitem(last=False)
            del self._block_of[self._hash_of.pop(block)]
            blocks.append(block)
        taken = np.array(blocks, np.int32)
        self.ref_counts[taken] = 1
        return taken

    def find(self, block_hash: bytes) -> int | None:
        """The block with this content, in use or not."""
        return self._block_of.get(block_hash)

    def publish(self, block: int, block_hash: bytes) -> None:
        """Make the content of a block in use known. Of two equal blocks the first stays known."""
        if block_hash not in self._block_of:
            self._block_of[block_hash] = block
            self._hash_of[block] = block_hash

    def idle_among(self, blocks: list[int]) -> int:
        """How many of these are cached and in nobody's use: ``touch`` makes them unavailable."""
        return sum(block in self._cached for block in blocks)

    def touch(self, blocks: list[int]) -> None:
        """One more reference to each of these different blocks."""
        for block in blocks:
            self._cached.pop(block, None)
            self.ref_counts[block] += 1

    def release(self, blocks: I32Array) -> None:
        """One reference less to each of these different blocks, in the order of their reuse."""
        self.ref_counts[blocks] -= 1
        for block in blocks[self.ref_counts[blocks] == 0].tolist():
            if block in self._hash_of:
                self._cached[block] = None
            else:
                self._free.append(block)
