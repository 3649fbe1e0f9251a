"""Copies slices of checkpoint tensors into place with little memory of its own.

safetensors maps files. Mapped pages that were touched count as this process's memory until the
mapping ends, so pieces are small and a file is opened anew after a few of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from torpor_protocol.errors import ModelError
from torpor_worker.layers.sharding import Shard
from torpor_worker.loader.checkpoint import DOWNLOAD, TensorEntry
from torpor_worker.loader.errors import WeightsCorrupt

PIECE_BYTES = 4 * 2**20  # touched at once
MAPPED_BYTES = 8 * 2**20  # touched before the file is opened anew

_ITEM_BYTES = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2}


class SliceReader:
    """One per load; a context that closes its file."""

    def __init__(self) -> None:
        self._file: Path | None = None
        self._open: Any = None
        self._touched = 0

    def __enter__(self) -> SliceReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def copy(self, name: str, entry: TensorEntry, shard: Shard, destination: Tensor) -> None:
        """Copy a shard of a tensor into its place in ``destination``, converted to its dtype.

        Raises ModelError (shape, data type) and WeightsCorrupt (unreadable).
        """
        self._check(name, entry, shard)
        end = shard.offset + shard.stop - shard.start
        place = destination.narrow(shard.dim, shard.offset, end - shard.offset)
        # Pieces are runs of rows; whatever part of a row is wanted, its pages are touched whole.
        row_bytes = _ITEM_BYTES[entry.dtype]
        for size in entry.shape[1:]:
            row_bytes *= size
        first, rows = (shard.start, place.shape[0]) if shard.dim == 0 else (0, entry.shape[0])
        step = max(1, PIECE_BYTES // max(1, row_bytes))
        for row in range(0, rows, step):
            count = min(step, rows - row)
            piece = place.narrow(0, row, count)
            try:
                piece.copy_(self._read(name, entry.file, shard, first + row, count))
            except (SafetensorError, OSError) as error:
                raise WeightsCorrupt(
                    f"{name} in {entry.file} cannot be read: {error}.", DOWNLOAD
                ) from error
            self._count(count * row_bytes)

    def _read(self, name: str, file: Path, shard: Shard, row: int, count: int) -> Tensor:
        source = self._opened(file).get_slice(name)
        if shard.dim == 0:
            rows: Tensor = source[row : row + count]
            return rows
        columns: Tensor = source[row : row + count, shard.start : shard.stop]
        return columns

    def _check(self, name: str, entry: TensorEntry, shard: Shard) -> None:
        if entry.dtype not in _ITEM_BYTES:
            raise ModelError(
                f"{name} in {entry.file} has data type {entry.dtype}, which is not supported.",
                "Use a model with float weights that are not quantized.",
            )
        if entry.shape != shard.shape:
            raise ModelError(
                f"{name} in {entry.file} has shape {list(entry.shape)}, but config.json asks for "
                f"{list(shard.shape)}.",
                "Use the config.json that belongs to these weights.",
            )

    def _opened(self, file: Path) -> Any:
        if self._file != file:
            self._close()
            self._open = safe_open(file, framework="pt")
            self._file = file
        return self._open

    def _count(self, touched: int) -> None:
        self._touched += touched
        if self._touched >= MAPPED_BYTES:
            self._close()

    def _close(self) -> None:
        # The mapping ends with the last object that refers to it.
        self._open = None
        self._file = None
        self._touched = 0
