"""Sampling parameters of all rows, as arrays on the device.

A parameter is set on the host when a request joins and published to the device once per step if
anything changed. On a CPU host and device are the same memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from torpor_protocol.arrays import I64Array
from torpor_worker.upload import upload

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class SampleRows:
    """The rows that sample in a step, in batch order; all int64 [m].

    ``host`` and ``device`` are the same row numbers; ``positions`` (device): the place of the token
    to come in its request; ``output_lens`` (host): how many tokens the request has generated.
    """

    host: I64Array
    device: Tensor
    positions: Tensor
    output_lens: I64Array

    def __len__(self) -> int:
        return len(self.host)

    def take(self, index: I64Array) -> SampleRows:
        """Some of them, by their place in the batch."""
        where = upload(index, self.device.device)
        return SampleRows(
            self.host[index],
            self.device.index_select(0, where),
            self.positions.index_select(0, where),
            self.output_lens[index],
        )


class RowParameter:
    """A value, or (``width``) a list of values, per row. ``host``: [rows] or [rows, width]."""

    def __init__(
        self,
        rows: int,
        dtype: type[np.generic],
        neutral: float,
        device: torch.device | str,
        width: int | None = None,
    ) -> None:
        size = rows if width is None else (rows, width)
        self.host: NDArray[np.generic] = np.full(size, neutral, dtype)
        self._neutral = neutral
        self._place = torch.device(device)
        self._device = upload(self.host, self._place)
        self._changed = False

    def set(self, row: int, value: ArrayLike) -> None:
        """Of a list parameter the places behind the given values become neutral."""
        if self.host.ndim == 1:
            self.host[row] = value
        else:
            values = np.asarray(value, self.host.dtype)
            self._widen(len(values))
            self.host[row] = self._neutral
            self.host[row, : len(values)] = values
        self._changed = True

    def _widen(self, width: int) -> None:
        missing = width - self.host.shape[1]
        if missing > 0:
            fill = np.full((len(self.host), missing), self._neutral, self.host.dtype)
            self.host = np.concatenate((self.host, fill), axis=1)
            self._device = upload(self.host, self._place)

    def publish(self) -> None:
        """Make what was set visible to ``of``."""
        if self._changed:
            self._device = upload(self.host, self._place)
        self._changed = False

    def of(self, rows: SampleRows) -> Tensor:
        """[m] or [m, width], on the device."""
        return self._device.index_select(0, rows.device)
