"""Weights packed for oneDNN: on a CPU the largest single gain of a decode step.

The packed copy replaces the plain weight layer by layer: the plain one lies under the tag
``staging`` while its parts are read and is dropped before the packed bytes enter the pool, so a
load never holds more than one layer twice.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torpor_worker.layers.linear_method import LinearMethod
from torpor_worker.layers.opaque import descriptor, opaque_tensor, raw_bytes
from torpor_worker.layers.packed_rows import PackedRows, find_rows
from torpor_worker.memory.pages import trim_heap
from torpor_worker.memory.pool import STAGING, WEIGHTS, MemoryPool


def pack(plain: Tensor) -> Tensor:
    """Reorder [rows, columns] into the layout that oneDNN's matrix product wants."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(plain, None)
    return packed


class PackedLinear(LinearMethod):
    """``reads_rows`` is set by a tied embedding before the first load."""

    def __init__(self, pool: MemoryPool) -> None:
        super().__init__(pool)
        self.reads_rows = False
        self._plain: Tensor | None = None
        self._memory: Tensor | None = None
        self._packed: Tensor | None = None
        self._row_reader: PackedRows | None = None
        self._row_copy: Tensor | None = None

    def create_weights(self, layer: nn.Module, rows: int, columns: int, dtype: torch.dtype) -> None:
        # How many bytes the packed form takes is known when the first load has packed it.
        self._shape = (rows, columns)
        self._dtype = dtype

    def begin_load(self) -> None:
        self._plain = self.pool.allocate(STAGING, self._shape, self._dtype)

    @property
    def plain(self) -> Tensor:
        if self._plain is None:
            raise ValueError("the plain weight exists only while its layer is loaded")
        return self._plain

    def process_after_load(self) -> None:
        packed = pack(self.plain)
        source = raw_bytes(packed)
        if self._memory is None and self.reads_rows:
            self._prepare_rows(source)
        if self._row_copy is not None:
            self._row_copy.copy_(self.plain)
        self._plain = None
        self.pool.drop(STAGING)
        if self._memory is None:
            self._memory = self.pool.allocate(WEIGHTS, source.shape, torch.uint8)
            self._packed = opaque_tensor(self._memory, self._shape, self._dtype, descriptor(packed))
        self._memory.copy_(source)
        # The C library would keep the freed copy for later; the next layers are what comes later.
        del packed, source
        trim_heap()

    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, bias, "none", [], "")
        return out

    def rows(self, indices: Tensor) -> Tensor:
        if self._row_copy is not None:
            return F.embedding(indices, self._row_copy)
        if self._row_reader is None or self._memory is None:
            raise ValueError("rows can be read after a load with reads_rows set")
        return self._row_reader.read(self._memory, indices)

    def stored(self) -> Iterator[tuple[str, Tensor]]:
        if self._memory is not None:
            yield "weight", self._memory
        if self._row_copy is not None:
            yield "rows", self._row_copy

    def _prepare_rows(self, source: Tensor) -> None:
        """Read rows out of the packed form where its layout is understood, else keep a copy."""
        self._row_reader = find_rows(source, self.plain)
        if self._row_reader is None:
            self._row_copy = self.pool.allocate(WEIGHTS, self._shape, self._dtype)
