"""The interface of a memory pool: what sleep releases and wake restores.

Everything a rank must give back while it sleeps (weights, KV cache) is allocated here under a tag.
Releasing a tag gives its memory back to the system and keeps the addresses, so tensors, packed
weights and captured graphs stay valid; restoring it backs the same addresses again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

WEIGHTS = "weights"
KV_CACHE = "kv_cache"
# Weights in the layout of the checkpoint, on their way into another one; gone after each layer.
STAGING = "staging"


class MemoryPool(ABC):
    """One per rank. Not for use from several threads at once."""

    device: torch.device

    @abstractmethod
    def allocate(self, tag: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A contiguous tensor of zeros, aligned to 64 bytes.

        Raises MemoryBudgetError when there is no memory, ValueError when the tag is released.
        """

    @abstractmethod
    def release(self, tag: str, *, keep: bool = False) -> int:
        """Give the memory of a tag back; returns the bytes that were really given back.

        ``keep``: the contents are wanted again. An accelerator copies them to the host first; on a
        CPU, where there is no other place, they stay and 0 is returned. Without ``keep`` they are
        lost. A tag that is released already, or unknown, gives 0.
        """

    @abstractmethod
    def restore(self, tag: str) -> int:
        """Make a released tag usable again; returns its bytes, 0 if it was not released.

        The contents are what ``release(keep=True)`` kept, else zeros (CPU) or undefined (CUDA).
        All is backed by memory at once, but for weights on a CPU: loading them touches every page.
        Raises MemoryBudgetError when there is no memory.
        """

    @abstractmethod
    def drop(self, tag: str) -> int:
        """Forget the allocations of a tag for good; its tensors must not be used any more."""

    @abstractmethod
    def is_released(self, tag: str) -> bool:
        """True between ``release`` (that gave memory back) and ``restore``."""

    @abstractmethod
    def bytes(self, tag: str) -> int:
        """Bytes allocated under a tag, released or not."""

    @abstractmethod
    def resident(self) -> int:
        """Bytes of all tags that are backed by memory now; on a CPU, untouched pages are not."""
