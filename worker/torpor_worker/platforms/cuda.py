"""Ranks on CUDA devices. ROCm builds of torch answer to the same names."""

from __future__ import annotations

from functools import cached_property

import torch

from torpor_protocol.config import DType
from torpor_protocol.errors import ConfigError
from torpor_worker.memory.cuda import CudaMemoryPool, load_memory_saver
from torpor_worker.memory.pool import MemoryPool
from torpor_worker.memory.system import MemorySnapshot
from torpor_worker.platforms.base import Platform

_BFLOAT16_CAPABILITY = (8, 0)


class CudaPlatform(Platform):
    name = "cuda"
    # Tensors on the host (control) go over gloo, tensors on the device over NCCL.
    distributed_backend = "cpu:gloo,cuda:nccl"
    attention_backend = "triton"

    def __init__(self) -> None:
        self._device: torch.device | None = None

    @property
    def device(self) -> torch.device:
        if self._device is None:
            raise ValueError("the device is not claimed yet")
        return self._device

    def claim(self, local_rank: int) -> torch.device:
        count = torch.cuda.device_count()
        if local_rank >= count:
            raise ConfigError(
                f"Rank {local_rank} of this pod has no CUDA device; {count} are visible.",
                "Give the worker pod one accelerator per rank, or lower ranksPerPod.",
            )
        self._device = torch.device("cuda", local_rank)
        torch.cuda.set_device(self._device)
        return self._device

    def memory_snapshot(self) -> MemorySnapshot:
        available, total = torch.cuda.mem_get_info(self.device)
        return MemorySnapshot(total, available)

    def resident(self) -> int:
        snapshot = self.memory_snapshot()
        return snapshot.total - snapshot.available

    def dtypes(self) -> frozenset[DType]:
        if torch.cuda.get_device_capability(self.device) < _BFLOAT16_CAPABILITY:
            return frozenset({"float32", "float16"})
        return frozenset({"float32", "bfloat16", "float16"})

    @cached_property
    def _pool(self) -> CudaMemoryPool:
        return CudaMemoryPool(self.device, load_memory_saver())

    def pool(self) -> MemoryPool:
        return self._pool

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.device)
