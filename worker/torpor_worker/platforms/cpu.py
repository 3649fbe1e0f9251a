"""Ranks on CPU cores: every rank is a process with its share of threads."""

from __future__ import annotations

from functools import cached_property

import torch

from torpor_protocol.config import DType
from torpor_worker.memory.cpu import CpuMemoryPool
from torpor_worker.memory.pages import keep_heap
from torpor_worker.memory.pool import MemoryPool
from torpor_worker.memory.system import MemorySnapshot, memory_snapshot, process_resident
from torpor_worker.platforms.base import Platform


class CpuPlatform(Platform):
    """All data types run; those the processor lacks are slow. The number of threads is the rank
    process's affair: it must be set before torch starts any."""

    name = "cpu"
    distributed_backend = "gloo"
    attention_backend = "cpu"

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def claim(self, local_rank: int) -> torch.device:
        keep_heap()
        return self.device

    def memory_snapshot(self) -> MemorySnapshot:
        return memory_snapshot()

    def resident(self) -> int:
        return process_resident()

    def dtypes(self) -> frozenset[DType]:
        return frozenset({"float32", "bfloat16", "float16"})

    @cached_property
    def _pool(self) -> CpuMemoryPool:
        return CpuMemoryPool()

    def pool(self) -> MemoryPool:
        return self._pool

    def synchronize(self) -> None:
        """The CPU is done when the call returns."""
