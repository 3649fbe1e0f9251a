"""The interface of a rank's process groups, and the null object of a world of one.

Model code asks these operations without knowing whether anybody else exists. Only tensors travel
here; nothing is ever pickled.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor


class ParallelGroups(ABC):
    """``rank = pp_rank * tp_size + tp_rank``."""

    def __init__(self, rank: int, tp_size: int, pp_size: int) -> None:
        self.rank = rank
        self.tp_size = tp_size
        self.pp_size = pp_size
        self.tp_rank = rank % tp_size
        self.pp_rank = rank // tp_size

    @property
    def world_size(self) -> int:
        return self.tp_size * self.pp_size

    @property
    def is_first_stage(self) -> bool:
        return self.pp_rank == 0

    @property
    def is_last_stage(self) -> bool:
        return self.pp_rank == self.pp_size - 1

    @property
    def output_rank(self) -> int:
        """The rank that samples: tensor-parallel rank 0 of the last stage."""
        return (self.pp_size - 1) * self.tp_size

    @abstractmethod
    def tp_all_reduce(self, tensor: Tensor) -> Tensor:
        """The sum over the stage's ranks, in place; ``tensor`` must be contiguous."""

    @abstractmethod
    def tp_gather(self, tensor: Tensor) -> list[Tensor] | None:
        """Equal-shaped tensors of the stage's ranks in order, on tensor-parallel rank 0."""

    @abstractmethod
    def world_broadcast(self, tensor: Tensor, src: int) -> Tensor:
        """Overwrite ``tensor`` with rank ``src``'s; all ranks call it with the same shape."""

    @abstractmethod
    def send_next(self, tensor: Tensor) -> None:
        """Send to the same tensor-parallel rank of the next stage. Returns before it is received;
        the tensor must not be written any more."""

    @abstractmethod
    def recv_previous(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A new tensor from the same tensor-parallel rank of the stage before."""

    @abstractmethod
    def barrier(self) -> None:
        """Wait until every rank of the world is here."""

    @abstractmethod
    def close(self) -> None:
        """Leave the world. The groups cannot be used afterwards."""


class SingleRank(ParallelGroups):
    """A world of one: nothing travels, and torch.distributed is never started."""

    def __init__(self) -> None:
        super().__init__(rank=0, tp_size=1, pp_size=1)

    def tp_all_reduce(self, tensor: Tensor) -> Tensor:
        return tensor

    def tp_gather(self, tensor: Tensor) -> list[Tensor] | None:
        return [tensor]

    def world_broadcast(self, tensor: Tensor, src: int) -> Tensor:
        return tensor

    def send_next(self, tensor: Tensor) -> None:
        raise ValueError("a world of one has no next stage")

    def recv_previous(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        raise ValueError("a world of one has no previous stage")

    def barrier(self) -> None:
        """Nobody to wait for."""

    def close(self) -> None:
        """Nothing was opened."""
