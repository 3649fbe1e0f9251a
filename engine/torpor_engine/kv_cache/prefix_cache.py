"""Which blocks hold the beginning of a prompt already.

A block is known by a SHA-256 over its parent's hash and its tokens; the chain begins with the
request's salt, so requests with different salts never share a block and nobody can learn from
timing what another tenant's prompt was. Only full blocks are known, and at least the last token of
a request is always computed: its logits are what is sampled from.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Protocol

from torpor_engine.kv_cache.block_pool import BlockPool
from torpor_protocol.arrays import I32Array, pack_i32

_ROOT = b"torpor prefix cache v1\0"


class PrefixIndex(Protocol):
    """``hashes`` is the caller's memory of a request's block hashes; it is extended in place."""

    def match(self, pool: BlockPool, tokens: I32Array, salt: str, hashes: list[bytes]) -> list[int]:
        """The longest run of known blocks that ``tokens`` begins with."""

    def publish(
        self,
        pool: BlockPool,
        blocks: I32Array,
        tokens: I32Array,
        salt: str,
        hashes: list[bytes],
    ) -> None:
        """Make ``blocks`` known: the last full ones that ``tokens``, from the beginning, fill."""


class PrefixCache:
    """The hash chain over a request's blocks, looked up and published in a pool."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size

    def match(self, pool: BlockPool, tokens: I32Array, salt: str, hashes: list[bytes]) -> list[int]:
        blocks: list[int] = []
        for index in range((len(tokens) - 1) // self._block_size):
            if index == len(hashes):
                self._extend(hashes, tokens, salt, index + 1)
            block = pool.find(hashes[index])
            if block is None:
                break
            blocks.append(block)
        return blocks

    def publish(
        self,
        pool: BlockPool,
        blocks: I32Array,
        tokens: I32Array,
        salt: str,
        hashes: list[bytes],
    ) -> None:
        full = len(tokens) // self._block_size
        self._extend(hashes, tokens, salt, full)
        for block, block_hash in zip(
            blocks.tolist(), hashes[full - len(blocks) : full], strict=True
        ):
            pool.publish(block, block_hash)

    def _extend(self, hashes: list[bytes], tokens: I32Array, salt: str, count: int) -> None:
        known = len(hashes)
        if known >= count:
            return
        parent = hashes[-1] if hashes else sha256(_ROOT + salt.encode()).digest()
        data = pack_i32(tokens[known * self._block_size : count * self._block_size])
        width = 4 * self._block_size
        for start in range(0, len(data), width):
            parent = sha256(parent + data[start : start + width]).digest()
            hashes.append(parent)


class NoPrefixCache:
    """Prefix caching is off: nothing is known, nothing is hashed."""

    def match(self, pool: BlockPool, tokens: I32Array, salt: str, hashes: list[bytes]) -> list[int]:
        return []

    def publish(
        self,
        pool: BlockPool,
        blocks: I32Array,
        tokens: I32Array,
        salt: str,
        hashes: list[bytes],
    ) -> None:
        return
