"""Triton kernels of the runner. Imported only where a device runs them (or the interpreter)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor

from torpor_worker.runner.staged_write import PackedWrites

BLOCK = 1024


@triton.jit  # type: ignore[untyped-decorator]
def _write_packed_kernel(  # type: ignore[no-untyped-def]
    target, starts, offsets, content, BLOCK: tl.constexpr
) -> Any:
    """One program per staged write: copy its slice of the content in pieces of BLOCK."""
    write = tl.program_id(0)
    first = tl.load(offsets + write)
    last = tl.load(offsets + write + 1)
    start = tl.load(starts + write)
    for piece in range(first, last, BLOCK):
        index = piece + tl.arange(0, BLOCK)
        inside = index < last
        value = tl.load(content + index, mask=inside)
        tl.store(target + start + (index - first), value, mask=inside)


def write_packed(tensor: Tensor, packed: PackedWrites) -> None:
    """Copy one private buffer to the device and apply it by one launch.

    The buffer is pinned and never written again, so the copy may run after this returns."""
    starts, offsets, content = packed
    parts = [starts.view(np.uint8), offsets.view(np.uint8), content.view(np.uint8)]
    buffer = torch.from_numpy(np.concatenate(parts))
    if tensor.device.type == "cuda":
        buffer = buffer.pin_memory()
    moved = buffer.to(tensor.device, non_blocking=True)
    middle, end = starts.nbytes, starts.nbytes + offsets.nbytes
    _write_packed_kernel[(len(starts),)](
        tensor,
        moved[:middle].view(torch.int64),
        moved[middle:end].view(torch.int64),
        moved[end:].view(tensor.dtype),
        BLOCK=BLOCK,
    )
