"""Blocks, prefix hits and their limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from torpor_engine.kv_cache import KVCacheManager
from torpor_protocol.arrays import I32Array
from torpor_protocol.config import CacheConfig


def manager(blocks: int = 17, prefix_caching: bool = True, size: int = 4) -> KVCacheManager:
    config = CacheConfig(block_size=size, prefix_caching=prefix_caching)
    return KVCacheManager(config, num_rows=4, max_model_len=64, num_blocks=blocks)


def tokens(count: int, first: int = 100) -> I32Array:
    return np.arange(first, first + count, dtype=np.int32)


def fill(kv: KVCacheManager, row: int, data: I32Array, salt: str = "") -> tuple[int, list[int]]:
    """Admit, compute and publish a request; returns how much of it was cached and its table."""
    num_cached, cached = kv.lookup(data, salt)
    assert kv.can_allocate(len(data), cached)
    table = kv.allocate(row, len(data), cached).tolist()
    kv.publish(row, data, salt, [])
    return num_cached, table


@pytest.mark.parametrize(
    ("length", "hit"),
    [(1, 0), (4, 0), (5, 4), (7, 4), (8, 4), (9, 8), (16, 12), (17, 16), (30, 28)],
)
def test_a_hit_is_of_full_blocks_and_leaves_a_token(length: int, hit: int) -> None:
    kv = manager()
    _, table = fill(kv, 0, tokens(30))
    num_cached, cached = kv.lookup(tokens(length))
    assert num_cached == hit
    assert cached == table[: hit // 4]


def test_a_hit_ends_at_the_first_difference() -> None:
    kv = manager()
    fill(kv, 0, tokens(30))
    other = tokens(30)
    other[9] = 7
    assert kv.lookup(other)[0] == 8
    other[0] = 7
    assert kv.lookup(other)[0] == 0


def test_equal_blocks_after_different_beginnings_are_different() -> None:
    kv = manager()
    same = tokens(4, first=50)
    fill(kv, 0, np.concatenate((tokens(4, first=1), same, same)))
    swapped = np.concatenate((same, tokens(4, first=1), same))
    assert kv.lookup(swapped)[0] == 0


def test_salts_do_not_share() -> None:
    kv = manager()
    fill(kv, 0, tokens(12), salt="a")
    assert kv.lookup(tokens(12), "a")[0] == 8
    assert kv.lookup(tokens(12), "b")[0] == 0
    assert kv.lookup(tokens(12))[0] == 0


def test_remembered_hashes_give_the_same_hit() -> None:
    kv = manager()
    memory: list[bytes] = []
    assert kv.lookup(tokens(13), "s", memory) == (0, [])
    fill(kv, 0, tokens(13), salt="s")
    before = list(memory)
    assert kv.lookup(tokens(13), "s", memory) == kv.lookup(tokens(13), "s")
    assert memory[: len(before)] == before and len(memory) == 3


def test_cached_blocks_are_shared_and_the_rest_is_fresh() -> None:
    kv = manager()
    _, first = fill(kv, 0, tokens(10))
    hit, second = fill(kv, 1, tokens(10))
    assert hit == 8
    assert second[:2] == first[:2] and second[2] != first[2]
    assert kv.pool.ref_counts[first].tolist() == [2, 2, 1]
    assert (kv.queries, kv.hits) == (20, 8)


def test_nothing_is_found_without_prefix_caching() -> None:
    kv = manager(prefix_caching=False)
    fill(kv, 0, tokens(10))
    assert kv.lookup(tokens(10)) == (0, [])
    kv.free(0)
    assert kv.pool.num_cached == 0 and kv.hits == 0


def test_the_tail_of_a_sequence_is_evicted_first() -> None:
    kv = manager(blocks=5)
    fill(kv, 0, tokens(16))
    kv.free(0)
    assert kv.pool.num_cached == 4
    kv.allocate(1, 8, [])
    assert kv.lookup(tokens(17))[0] == 8


def test_a_touched_block_is_not_evicted() -> None:
    kv = manager(blocks=5)
    fill(kv, 0, tokens(8))
    kv.free(0)
    hit, table = fill(kv, 1, tokens(8))
    assert hit == 4
    kv.allocate(2, 8, [])
    assert kv.pool.available == 0
    assert kv.lookup(tokens(5)) == (4, table[:1])


@pytest.mark.parametrize(
    ("length", "spare", "fits"),
    [(8, 0, True), (8, 2, True), (8, 3, False), (16, 0, True), (17, 0, False)],
)
def test_room_counts_spare_blocks(length: int, spare: int, fits: bool) -> None:
    assert manager(blocks=5).can_allocate(length, [], spare) is fits


def test_room_does_not_count_idle_blocks_that_are_hit_twice() -> None:
    kv = manager(blocks=5)
    fill(kv, 0, tokens(8))
    kv.free(0)
    _, cached = kv.lookup(tokens(9))
    assert len(cached) == 2
    assert kv.can_allocate(16, cached)
    assert not kv.can_allocate(20, cached)


def test_rows_grow_by_a_block_each() -> None:
    kv = manager()
    kv.allocate(0, 4, [])
    kv.allocate(2, 3, [])
    grown = kv.grow(np.array([2, 0], np.int32))
    assert kv.tables[2, 1] == grown[0] and kv.tables[0, 1] == grown[1]
    assert kv.counts.tolist() == [2, 0, 2, 0]
    assert kv.capacity.tolist() == [8, 0, 8, 0]


@pytest.mark.parametrize(("rows", "usage"), [(0, 0.0), (1, 0.25), (2, 0.5), (4, 1.0)])
def test_usage_is_the_share_of_blocks_in_use(rows: int, usage: float) -> None:
    kv = manager(blocks=17)
    for row in range(rows):
        kv.allocate(row, 16, [])
    assert kv.usage == usage


def test_reset_forgets_everything_and_takes_the_new_size() -> None:
    kv = manager()
    fill(kv, 0, tokens(30))
    kv.reset(9)
    assert kv.lookup(tokens(30)) == (0, [])
    assert (kv.pool.num_free, kv.usage, kv.max_tokens) == (8, 0.0, 32)
    assert not kv.counts.any() and not kv.capacity.any()


@pytest.mark.parametrize("field", ["parent", "salt"])
def test_hashes_are_of_the_whole_history(field: str) -> None:
    kv = manager()
    kinds: dict[str, tuple[Any, Any]] = {
        "parent": ((tokens(8), ""), (np.concatenate((tokens(4, 9), tokens(4, 104))), "")),
        "salt": ((tokens(8), ""), (tokens(8), "x")),
    }
    found = []
    for data, salt in kinds[field]:
        memory: list[bytes] = []
        kv.lookup(data, salt, memory)
        fill(kv, 0, data, salt)
        kv.lookup(np.append(data, 1).astype(np.int32), salt, memory)
        kv.free(0)
        found.append(memory)
    assert len(found[0]) == len(found[1]) == 2
    assert found[0][1] != found[1][1]
    assert all(len(item) == 32 for item in found[0])
