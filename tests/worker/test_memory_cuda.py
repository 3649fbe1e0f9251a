"""The CUDA pool's bookkeeping, over a stand-in for torch_memory_saver on the CPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from torpor_protocol.errors import ConfigError, MemoryBudgetError
from torpor_worker.memory.cuda import CudaMemoryPool, load_memory_saver

WORDS = 64


class FakeSaver:
    """Remembers what was asked; a pause overwrites ``lose``, as the real one may."""

    def __init__(self) -> None:
        self.regions: list[str] = []
        self.calls: list[tuple[str, str]] = []
        self.lose: list[torch.Tensor] = []
        self.fails = False

    @contextmanager
    def region(self, tag: str) -> Iterator[None]:
        self.regions.append(tag)
        yield

    def pause(self, tag: str) -> None:
        self.calls.append(("pause", tag))
        for tensor in self.lose:
            tensor.fill_(-1)

    def resume(self, tag: str) -> None:
        if self.fails:
            raise RuntimeError("out of memory")
        self.calls.append(("resume", tag))


@pytest.fixture
def saver() -> FakeSaver:
    return FakeSaver()


@pytest.fixture
def pool(saver: FakeSaver) -> CudaMemoryPool:
    return CudaMemoryPool(torch.device("cpu"), saver)


@pytest.fixture
def tensor(pool: CudaMemoryPool, saver: FakeSaver) -> torch.Tensor:
    tensor = pool.allocate("weights", (WORDS,), torch.float32).fill_(3)
    saver.lose = [tensor]
    return tensor


def test_allocations_lie_in_a_region_of_their_tag(pool: CudaMemoryPool, saver: FakeSaver) -> None:
    assert not pool.allocate("kv_cache", (2, 3), torch.float16).any()
    assert saver.regions == ["kv_cache"]
    assert pool.bytes("kv_cache") == pool.resident() == 12


def test_kept_contents_come_back(
    pool: CudaMemoryPool, saver: FakeSaver, tensor: torch.Tensor
) -> None:
    assert pool.release("weights", keep=True) == 4 * WORDS
    assert pool.is_released("weights") and pool.resident() == 0
    assert pool.restore("weights") == 4 * WORDS
    assert saver.calls == [("pause", "weights"), ("resume", "weights")]
    assert bool((tensor == 3).all())


def test_dropped_contents_do_not(
    pool: CudaMemoryPool, saver: FakeSaver, tensor: torch.Tensor
) -> None:
    pool.release("weights")
    pool.restore("weights")
    assert bool((tensor == -1).all())


def test_deeper_sleep_drops_the_host_copies(
    pool: CudaMemoryPool, saver: FakeSaver, tensor: torch.Tensor
) -> None:
    pool.release("weights", keep=True)
    assert pool.release("weights") == 0
    pool.restore("weights")
    assert bool((tensor == -1).all())


def test_a_second_call_does_nothing(
    pool: CudaMemoryPool, saver: FakeSaver, tensor: torch.Tensor
) -> None:
    pool.release("weights")
    assert pool.release("weights") == 0
    with pytest.raises(ValueError, match="released"):
        pool.allocate("weights", (1,), torch.float32)
    pool.restore("weights")
    assert pool.restore("weights") == 0
    assert len(saver.calls) == 2


def test_no_memory_to_wake_is_an_error_and_can_be_tried_again(
    pool: CudaMemoryPool, saver: FakeSaver, tensor: torch.Tensor
) -> None:
    pool.release("weights", keep=True)
    saver.fails = True
    with pytest.raises(MemoryBudgetError, match="cannot be restored: out of memory"):
        pool.restore("weights")
    assert pool.is_released("weights")
    saver.fails = False
    pool.restore("weights")
    assert bool((tensor == 3).all())


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_memory_saver", None)
    with pytest.raises(ConfigError, match="Install torch-memory-saver"):
        load_memory_saver()
