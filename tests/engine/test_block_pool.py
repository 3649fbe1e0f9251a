"""Where a block is, and which is taken next."""

from __future__ import annotations

import numpy as np

from torpor_engine.kv_cache.block_pool import NULL_BLOCK, BlockPool


def test_the_null_block_is_never_given_out() -> None:
    pool = BlockPool(5)
    assert pool.usable == pool.available == 4
    assert NULL_BLOCK not in pool.allocate(4)
    assert pool.available == 0 and pool.num_used == 4


def test_allocating_nothing_takes_nothing() -> None:
    pool = BlockPool(5)
    assert pool.allocate(0).tolist() == []
    assert pool.available == 4


def test_free_blocks_are_taken_before_cached_ones_and_the_oldest_of_those_first() -> None:
    pool = BlockPool(6)
    blocks = pool.allocate(4)
    for block in blocks[:3].tolist():
        pool.publish(block, b"%d" % block)
    pool.release(blocks[[1, 0, 3, 2]])
    assert (pool.num_free, pool.num_cached) == (2, 3)
    assert set(pool.allocate(2).tolist()) == {5, int(blocks[3])}
    evicted = pool.allocate(2).tolist()
    assert evicted == [int(blocks[1]), int(blocks[0])]
    assert pool.find(b"%d" % blocks[1]) is None
    assert pool.find(b"%d" % blocks[2]) == blocks[2]


def test_of_two_equal_blocks_the_first_stays_known() -> None:
    pool = BlockPool(4)
    one, two = pool.allocate(2).tolist()
    pool.publish(one, b"same")
    pool.publish(two, b"same")
    pool.release(np.array([two], np.int32))
    assert pool.find(b"same") == one
    assert (pool.num_free, pool.num_cached) == (2, 0)
