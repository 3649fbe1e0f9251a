"""How a linear layer stores its weight and multiplies by it.

One object per layer. The layer knows which rows and columns it holds; the method knows the form in
memory: plain, packed for a CPU library, later quantised.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torpor_worker.memory.pool import WEIGHTS, MemoryPool


class LinearMethod(ABC):
    """Called in this order: ``create_weights`` once; for every load ``begin_load``, writes into
    ``plain``, ``process_after_load``; then ``apply`` and ``rows``."""

    def __init__(self, pool: MemoryPool) -> None:
        self.pool = pool

    @abstractmethod
    def create_weights(self, layer: nn.Module, rows: int, columns: int, dtype: torch.dtype) -> None:
        """Take the weight [rows, columns] of this rank and register what stays on ``layer``."""

    @abstractmethod
    def begin_load(self) -> None:
        """Make ``plain`` ready."""

    @property
    @abstractmethod
    def plain(self) -> Tensor:
        """[rows, columns] as in the checkpoint; valid between begin_load and process_after_load."""

    @abstractmethod
    def process_after_load(self) -> None:
        """Turn the filled plain weight into the form that ``apply`` wants."""

    @abstractmethod
    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """x [n, columns], contiguous, and bias [rows] -> [n, rows] in the weight's dtype."""

    @abstractmethod
    def rows(self, indices: Tensor) -> Tensor:
        """Rows of the weight, [n, columns]: what a tied embedding reads. Indices are in range."""

    @abstractmethod
    def stored(self) -> Iterator[tuple[str, Tensor]]:
        """Memory in the pool that a load fills."""


class PlainLinear(LinearMethod):
    """The weight as it is in the checkpoint, multiplied by torch."""

    _weight: Tensor

    def create_weights(self, layer: nn.Module, rows: int, columns: int, dtype: torch.dtype) -> None:
        self._weight = self.pool.allocate(WEIGHTS, (rows, columns), dtype)
        layer.register_parameter("weight", nn.Parameter(self._weight, requires_grad=False))

    def begin_load(self) -> None:
        """The weight itself is filled."""

    @property
    def plain(self) -> Tensor:
        return self._weight

    def process_after_load(self) -> None:
        """It stays as it is."""

    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(x, self._weight, bias)

    def rows(self, indices: Tensor) -> Tensor:
        return F.embedding(indices, self._weight)

    def stored(self) -> Iterator[tuple[str, Tensor]]:
        yield "weight", self._weight
