"""Rows of a weight that is packed for oneDNN, without keeping the plain weight beside it.

A tied embedding needs single rows of the matrix whose packed form serves the head; for a small
model with a large vocabulary a second copy would be a fifth of all weights. oneDNN's layouts for
a matrix [rows, columns] are blocks of rows: ``[rows / block][columns / pair][block][pair]``, padded
with zeros. Which one a CPU uses is found by comparing every element, never assumed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_BLOCKS = (64, 48, 32, 16, 8)
_PAIRS = (1, 2, 4)
_STEP = 4096  # rows compared at a time, so that the check needs little memory


@dataclass(frozen=True)
class PackedRows:
    """A layout. ``columns`` are the real ones, ``depth`` the padded ones."""

    rows: int
    columns: int
    depth: int
    block: int
    pair: int
    dtype: torch.dtype

    def read(self, memory: Tensor, indices: Tensor) -> Tensor:
        """``memory``: the packed bytes, uint8; indices [n] in range -> [n, columns]."""
        shape = (-1, self.depth // self.pair, self.block, self.pair)
        blocks = memory.view(self.dtype).view(shape)
        rows = blocks[indices // self.block, :, indices % self.block]
        return rows.reshape(indices.shape[0], self.depth)[:, : self.columns]


def find_rows(memory: Tensor, plain: Tensor) -> PackedRows | None:
    """The layout under which ``memory`` (uint8) holds exactly ``plain``; None when unknown."""
    rows, columns = plain.shape
    elements = memory.numel() // plain.element_size()
    for block in _BLOCKS:
        padded = -(-rows // block) * block
        depth, rest = divmod(elements, padded)
        for pair in _PAIRS:
            if rest or depth < columns or depth % pair:
                continue
            candidate = PackedRows(rows, columns, depth, block, pair, plain.dtype)
            if _holds(candidate, memory, plain):
                return candidate
    return None


def _holds(candidate: PackedRows, memory: Tensor, plain: Tensor) -> bool:
    for start in range(0, candidate.rows, _STEP):
        indices = torch.arange(start, min(start + _STEP, candidate.rows))
        if not torch.equal(candidate.read(memory, indices), plain[start : start + _STEP]):
            return False
    return True
