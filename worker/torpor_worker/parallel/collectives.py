"""The operations within one pipeline stage, and the two ways they travel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor

from torpor_worker.parallel.exchange import SLOT_BYTES, Exchange


class StageCollectives(ABC):
    """All ranks of the stage make the same calls with equal shapes; ranks count in the stage."""

    @abstractmethod
    def all_reduce(self, tensor: Tensor) -> None:
        """Overwrite ``tensor``, which must be contiguous, with the sum over the ranks."""

    @abstractmethod
    def gather(self, tensor: Tensor) -> list[Tensor] | None:
        """Every rank's tensor in order, on rank 0."""

    @abstractmethod
    def broadcast(self, tensor: Tensor, src: int) -> None:
        """Overwrite ``tensor``, which must be contiguous, with rank ``src``'s."""

    @abstractmethod
    def close(self) -> None:
        """Nothing can be called afterwards."""


class DistributedCollectives(StageCollectives):
    """Over torch.distributed. ``ranks``: of the stage, in the world."""

    def __init__(self, group: dist.ProcessGroup, ranks: list[int], rank: int) -> None:
        self._group = group
        self._ranks = ranks
        self._rank = rank

    def all_reduce(self, tensor: Tensor) -> None:
        dist.all_reduce(tensor, group=self._group)

    def gather(self, tensor: Tensor) -> list[Tensor] | None:
        parts = None
        if self._rank == 0:
            parts = [torch.empty_like(tensor) for _ in self._ranks]
        dist.gather(tensor, parts, dst=self._ranks[0], group=self._group)
        return parts

    def broadcast(self, tensor: Tensor, src: int) -> None:
        dist.broadcast(tensor, src=self._ranks[src], group=self._group)

    def close(self) -> None:
        """The world's end is the group's."""


class SharedCollectives(StageCollectives):
    """Through memory, in pieces that fit its slots. Sums are taken in the order of the ranks, so
    every rank has the same."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def all_reduce(self, tensor: Tensor) -> None:
        for piece in _pieces(tensor):
            shown = self._exchange.show(piece.dtype, piece.numel(), piece)
            torch.sum(shown, 0, out=piece)

    def gather(self, tensor: Tensor) -> list[Tensor] | None:
        tensor = tensor.contiguous()
        here = self._exchange.rank == 0
        parts = [torch.empty_like(tensor) for _ in range(self._exchange.size if here else 0)]
        targets = [_pieces(part) for part in parts]
        for piece in _pieces(tensor):
            shown = self._exchange.show(piece.dtype, piece.numel(), piece)
            for target, part in zip(targets, shown, strict=False):
                next(target).copy_(part)
        return parts if here else None

    def broadcast(self, tensor: Tensor, src: int) -> None:
        for piece in _pieces(tensor):
            own = piece if self._exchange.rank == src else None
            shown = self._exchange.show(piece.dtype, piece.numel(), own)
            if own is None:
                piece.copy_(shown[src])

    def close(self) -> None:
        self._exchange.close()


def _pieces(tensor: Tensor) -> Iterator[Tensor]:
    flat = tensor.view(-1)
    step = SLOT_BYTES // tensor.element_size()
    return (flat[start : start + step] for start in range(0, flat.numel(), step))
