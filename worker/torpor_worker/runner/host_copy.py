"""The one copy of a step from device to host."""

from __future__ import annotations

import torch
from torch import Tensor

from torpor_protocol.arrays import I32Array


class HostCopy:
    """Starts when made, and is waited for once, as late as possible. Work that is queued on the
    device after it does not delay it."""

    def __init__(self, source: Tensor) -> None:
        """``source``: int32 [n]."""
        self._host = source
        self._done: torch.cuda.Event | None = None
        if source.device.type == "cuda":
            self._host = torch.empty(source.shape, dtype=source.dtype, pin_memory=True)
            self._host.copy_(source, non_blocking=True)
            self._done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            self._done.record()

    def wait(self) -> I32Array:
        if self._done is not None:
            self._done.synchronize()
        array: I32Array = self._host.numpy()
        return array
