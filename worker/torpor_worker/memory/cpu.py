"""The memory pool of a CPU rank: anonymous pages, released by telling the kernel to forget them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import torch
from torch import Tensor

from torpor_worker.memory.pages import HUGE_PAGE, Pages, round_up
from torpor_worker.memory.pool import WEIGHTS, MemoryPool

ALIGNMENT = 64  # bytes: a cache line, and what oneDNN asks of weights
CHUNK = 32 * HUGE_PAGE  # address space only; pages come when touched

# Written whole right after they are restored, layer by layer. Backing them before would make waking
# need more memory than starting did.
_REFILLED = frozenset({WEIGHTS})


@dataclass
class _Arena:
    """The chunks of one tag; allocations are cut from the last one. ``used`` in bytes per chunk."""

    chunks: list[Pages] = field(default_factory=list)
    used: list[int] = field(default_factory=list)
    released: bool = False

    def take(self, size: int) -> tuple[Pages, int]:
        """The chunk and the offset in it of ``size`` new bytes."""
        if not self.chunks or self.used[-1] + size > self.chunks[-1].size:
            self.chunks.append(Pages(max(size, CHUNK)))
            self.used.append(0)
        offset = self.used[-1]
        self.used[-1] += round_up(size, ALIGNMENT)
        return self.chunks[-1], offset


class CpuMemoryPool(MemoryPool):
    """Level 1 keeps weights where they are: host memory is where an accelerator would copy them."""

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self._arenas: dict[str, _Arena] = {}

    def allocate(self, tag: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        arena = self._arenas.setdefault(tag, _Arena())
        if arena.released:
            raise ValueError(f"memory {tag!r} is released; restore it before allocating")
        count = prod(shape)
        if count == 0:
            return torch.empty(tuple(shape), dtype=dtype)
        chunk, offset = arena.take(count * dtype.itemsize)
        start = chunk.start + offset
        flat = torch.frombuffer(chunk.memory, dtype=dtype, count=count, offset=start)
        return flat.view(tuple(shape))

    def release(self, tag: str, *, keep: bool = False) -> int:
        arena = self._arenas.get(tag)
        if arena is None or arena.released or keep:
            return 0
        arena.released = True
        return sum(chunk.discard() for chunk in arena.chunks)

    def restore(self, tag: str) -> int:
        arena = self._arenas.get(tag)
        if arena is None or not arena.released:
            return 0
        if tag not in _REFILLED:
            for chunk, used in zip(arena.chunks, arena.used, strict=True):
                chunk.populate(used)
        arena.released = False
        return sum(arena.used)

    def drop(self, tag: str) -> int:
        # Pages are freed now; the mapping goes when the last tensor over it does.
        arena = self._arenas.pop(tag, _Arena())
        return sum(chunk.discard() for chunk in arena.chunks)

    def is_released(self, tag: str) -> bool:
        arena = self._arenas.get(tag)
        return arena is not None and arena.released

    def bytes(self, tag: str) -> int:
        arena = self._arenas.get(tag)
        return sum(arena.used) if arena is not None else 0

    def resident(self) -> int:
        return sum(chunk.resident() for arena in self._arenas.values() for chunk in arena.chunks)
