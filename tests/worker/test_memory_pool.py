"""The CPU pool really gives memory back, and tensors over it survive."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys

import pytest
import torch

from torpor_protocol.errors import MemoryBudgetError
from torpor_worker.memory import KV_CACHE, STAGING, WEIGHTS, pages
from torpor_worker.memory.cpu import ALIGNMENT, CpuMemoryPool
from torpor_worker.memory.system import process_resident

MIB = 2**20
SIZE = 96 * MIB
# What else may change the process's memory meanwhile.
SLACK = 4 * MIB


def filled(pool: CpuMemoryPool, tag: str = WEIGHTS, size: int = SIZE) -> torch.Tensor:
    return pool.allocate(tag, (size // 4,), torch.float32).fill_(1.5)


def test_tensors_are_zero_contiguous_and_aligned() -> None:
    pool = CpuMemoryPool()
    for shape, dtype in [((3,), torch.int8), ((2, 5), torch.bfloat16), ((7, 1, 2), torch.int64)]:
        tensor = pool.allocate(WEIGHTS, shape, dtype)
        assert tensor.shape == shape and tensor.dtype == dtype
        assert tensor.is_contiguous() and tensor.data_ptr() % ALIGNMENT == 0
        assert not tensor.any()
    assert pool.allocate(WEIGHTS, (0, 4), torch.float32).shape == (0, 4)


def test_tensors_do_not_overlap() -> None:
    pool = CpuMemoryPool()
    tensors = [pool.allocate(WEIGHTS, (5, 7), torch.float32) for _ in range(20)]
    for number, tensor in enumerate(tensors):
        tensor.fill_(number)
    assert [int(tensor.sum()) for tensor in tensors] == [35 * number for number in range(20)]


def test_release_gives_memory_back_and_keeps_addresses() -> None:
    pool = CpuMemoryPool()
    tensor = filled(pool, KV_CACHE)
    address, before = tensor.data_ptr(), process_resident()
    assert pool.resident() >= SIZE
    freed = pool.release(KV_CACHE)
    assert freed >= SIZE
    assert process_resident() <= before - SIZE + SLACK
    assert pool.is_released(KV_CACHE) and pool.resident() == 0 and pool.bytes(KV_CACHE) == SIZE
    assert pool.restore(KV_CACHE) == SIZE
    assert process_resident() >= before - SLACK
    assert not pool.is_released(KV_CACHE) and pool.resident() >= SIZE
    assert tensor.data_ptr() == address and not tensor.any()
    assert bool((tensor.fill_(2) == 2).all())


def test_weights_are_backed_as_they_are_loaded() -> None:
    pool = CpuMemoryPool()
    tensor = filled(pool)
    pool.release(WEIGHTS)
    assert pool.restore(WEIGHTS) == SIZE and not pool.is_released(WEIGHTS)
    assert pool.resident() == 0
    tensor[: SIZE // 8] = 1
    assert pool.resident() < SIZE


def test_only_the_tag_is_released() -> None:
    pool = CpuMemoryPool()
    weights, cache = filled(pool), filled(pool, KV_CACHE, 8 * MIB)
    pool.release(KV_CACHE)
    assert float(weights.sum()) == 1.5 * weights.numel()
    assert not cache.any()
    assert pool.bytes(WEIGHTS) == SIZE and pool.bytes(KV_CACHE) == 8 * MIB


def test_untouched_pages_are_not_counted_as_freed() -> None:
    pool = CpuMemoryPool()
    cache = pool.allocate(KV_CACHE, (SIZE,), torch.uint8)
    cache[: 8 * MIB] = 1
    assert 8 * MIB <= pool.release(KV_CACHE) <= 8 * MIB + 2 * pages.HUGE_PAGE


def test_keep_leaves_weights_where_they_are() -> None:
    pool = CpuMemoryPool()
    tensor = filled(pool, size=4 * MIB)
    assert pool.release(WEIGHTS, keep=True) == 0
    assert not pool.is_released(WEIGHTS) and pool.restore(WEIGHTS) == 0
    assert bool((tensor == 1.5).all())


def test_twice_is_harmless() -> None:
    pool = CpuMemoryPool()
    filled(pool, size=4 * MIB)
    assert pool.release(WEIGHTS) > 0 and pool.release(WEIGHTS) == 0
    assert pool.restore(WEIGHTS) > 0 and pool.restore(WEIGHTS) == 0
    assert pool.release("unknown") == 0 and pool.restore("unknown") == 0
    assert pool.drop("unknown") == 0


def test_released_memory_cannot_be_allocated_from() -> None:
    pool = CpuMemoryPool()
    filled(pool, size=4 * MIB)
    pool.release(WEIGHTS)
    with pytest.raises(ValueError, match="released"):
        pool.allocate(WEIGHTS, (4,), torch.float32)


def test_drop_forgets_the_tag() -> None:
    pool = CpuMemoryPool()
    filled(pool, STAGING)
    before = process_resident()
    assert pool.drop(STAGING) >= SIZE
    assert process_resident() <= before - SIZE + SLACK
    assert pool.bytes(STAGING) == 0


def test_what_cannot_be_mapped_is_said_in_a_sentence() -> None:
    with pytest.raises(MemoryBudgetError, match=r"cannot be mapped: .*\. Lower "):
        CpuMemoryPool().allocate(KV_CACHE, (2**60,), torch.uint8)


def test_old_kernels_are_populated_by_touch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MADV_POPULATE_WRITE", 9_999)
    mapping = pages.Pages(4 * MIB)
    assert mapping.resident() == 0
    mapping.populate(3 * MIB + 5)
    assert mapping.resident() >= 3 * MIB + mmap.PAGESIZE


def test_cycles_do_not_grow() -> None:
    pool = CpuMemoryPool()
    tensor = filled(pool, size=16 * MIB)
    sizes = []
    for _ in range(50):
        pool.release(WEIGHTS)
        pool.restore(WEIGHTS)
        tensor.fill_(1)
        filled(pool, STAGING, 8 * MIB)
        pool.drop(STAGING)
        sizes.append(process_resident())
    assert max(sizes[10:]) <= sizes[9] + SLACK


FAULTS = """
import ctypes, resource, sys, torch
from torpor_worker.memory.pages import keep_heap
if sys.argv[1] == "keep":
    keep_heap()
x = torch.ones(512, 576)
for _ in range(5):
    y = x + 1
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    y = x + 1
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(mode: str) -> int:
    """Of fifty operations with a result of 1.1 MiB each."""
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(2**17)}
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, mode],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


def test_results_of_operations_reuse_the_pages_of_earlier_ones() -> None:
    assert page_faults("keep") < page_faults("leave") / 5
