"""The interface of a platform, and the one table of data types."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch

from torpor_protocol.config import DType
from torpor_protocol.errors import ConfigError
from torpor_worker.memory.pool import MemoryPool
from torpor_worker.memory.system import MemorySnapshot

_TORCH_DTYPES: dict[DType, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def torch_dtype(name: DType) -> torch.dtype:
    return _TORCH_DTYPES[name]


class Platform(ABC):
    """Claimed once per rank process, before anything is allocated."""

    name: str
    distributed_backend: str  # for torch.distributed.init_process_group
    attention_backend: str  # the default one

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """The rank's device; valid after ``claim``."""

    @abstractmethod
    def claim(self, local_rank: int) -> torch.device:
        """Take the device of a rank of this pod. Raises ConfigError when there is none."""

    @abstractmethod
    def memory_snapshot(self) -> MemorySnapshot:
        """Total and available bytes of the device's memory."""

    @abstractmethod
    def resident(self) -> int:
        """Bytes in use: the process's resident set on a CPU, the device's memory elsewhere."""

    @abstractmethod
    def dtypes(self) -> frozenset[DType]:
        """Data types that the device computes in."""

    @abstractmethod
    def pool(self) -> MemoryPool:
        """The rank's memory pool; the same object each time."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until the device has done all that was asked of it."""

    def check_dtype(self, dtype: DType) -> None:
        """Raises ConfigError."""
        if dtype not in self.dtypes():
            raise ConfigError(
                f"{dtype} is not supported on {self.name}.",
                f"Choose one of {', '.join(sorted(self.dtypes()))} with --dtype.",
            )
