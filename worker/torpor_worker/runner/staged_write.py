"""A persistent tensor whose changes are collected on the host and applied by one kernel.

A block table is too large to copy every step, and writing its few changes one by one costs a launch
each. So writes are staged as NumPy chunks, packed into one buffer that nobody writes again (the
device may read it later than this thread goes on), and applied together: on an accelerator by one
Triton kernel after one copy, on a CPU by one vectorised index write.
"""

from __future__ import annotations

import importlib
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from torpor_protocol.arrays import I64Array
from torpor_worker.runner.errors import OverlappingWrites

_NUMPY_TYPES = {torch.int32: np.int32, torch.int64: np.int64, torch.float32: np.float32}


class PackedWrites(NamedTuple):
    """``starts`` int64 [w]: first cell of each write in the flat tensor; ``offsets`` int64 [w + 1]:
    write i is ``content[offsets[i]:offsets[i + 1]]``."""

    starts: I64Array
    offsets: I64Array
    content: NDArray[np.generic]


class StagedWriteTensor:
    """``tensor``: [rows] or [rows, width], zeros at first, of int32, int64 or float32.

    Two writes to one cell before one apply are refused: on a device they have no order.
    """

    def __init__(
        self, size: int | tuple[int, ...], dtype: torch.dtype, device: torch.device | str
    ) -> None:
        self.tensor = torch.zeros(size, dtype=dtype, device=device)
        self._dtype = _NUMPY_TYPES[dtype]
        self._width = 1 if self.tensor.dim() == 1 else self.tensor.shape[1]
        self._starts: list[I64Array] = []
        self._counts: list[I64Array] = []
        self._content: list[NDArray[np.generic]] = []

    def stage_write(self, *, row: int, start: int, value: ArrayLike) -> None:
        """Put ``value`` (1-d) at ``[row, start:]``; of a 1-d tensor at ``[row + start:]``."""
        content = np.asarray(value, self._dtype)
        self.stage_writes(np.array([row]), np.array([start]), np.array([len(content)]), content)

    def stage_writes(
        self, rows: ArrayLike, starts: ArrayLike, counts: ArrayLike, content: ArrayLike
    ) -> None:
        """Many writes at once: ``rows``, ``starts`` and ``counts`` run in parallel, ``content`` is
        their values one after another. Raises ValueError for a write outside the tensor."""
        lines = np.asarray(rows, np.int64)
        columns = np.asarray(starts, np.int64)
        lengths = np.asarray(counts, np.int64)
        values = np.array(content, self._dtype)
        firsts = lines * self._width + columns
        if lengths.sum() != len(values) or self._outside(lines, columns, firsts, lengths):
            raise ValueError(f"A write does not fit into a tensor of {tuple(self.tensor.shape)}.")
        if len(values):
            self._starts.append(firsts)
            self._counts.append(lengths)
            self._content.append(values)

    def _outside(
        self, rows: I64Array, columns: I64Array, firsts: I64Array, counts: I64Array
    ) -> bool:
        if not len(rows):
            return False
        ends = columns + counts if self.tensor.dim() == 2 else firsts + counts
        limit = self._width if self.tensor.dim() == 2 else len(self.tensor)
        return bool(
            min(rows.min(), columns.min(), counts.min()) < 0
            or rows.max() >= len(self.tensor)
            or ends.max() > limit
        )

    def apply_write(self) -> None:
        """Apply what is staged; nothing to do costs nothing. Raises OverlappingWrites, with
        nothing written and the staged writes dropped."""
        if not self._content:
            return
        packed = self._pack()
        if self.tensor.device.type == "cpu":
            write_flat(self.tensor, packed)
        else:
            kernels = importlib.import_module("torpor_worker.runner.kernels")
            kernels.write_packed(self.tensor, packed)

    def _pack(self) -> PackedWrites:
        starts, counts = np.concatenate(self._starts), np.concatenate(self._counts)
        content = np.concatenate(self._content)
        self._starts, self._counts, self._content = [], [], []
        order = np.argsort(starts, kind="stable")
        ends = (starts + counts)[order]
        if (ends[:-1] > starts[order][1:]).any():
            raise OverlappingWrites("Two writes to one cell were staged for the same step.")
        offsets = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=offsets[1:])
        return PackedWrites(starts, offsets, content)


def write_flat(tensor: Tensor, packed: PackedWrites) -> None:
    """The CPU's kernel, and the meaning of the other: one vectorised index write."""
    starts, offsets, content = packed
    if len(starts) == 1:
        tensor.view(-1)[starts[0] : starts[0] + len(content)] = torch.from_numpy(content)
        return
    cells = np.repeat(starts - offsets[:-1], np.diff(offsets)) + np.arange(len(content))
    tensor.view(-1).index_put_((torch.from_numpy(cells),), torch.from_numpy(content))
