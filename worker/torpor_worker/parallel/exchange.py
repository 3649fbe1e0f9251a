"""Tensors between the ranks of one stage on one machine, through memory that all of them map.

gloo sends every partial result through sockets and two threads of its own per rank. For the small
tensors of a decode step that costs milliseconds where ranks outnumber cores, twice in every layer.
Here a rank writes its tensor into its own slot, raises its flag, and reads the others' slots when
their flags are up.

There are two sets of slots, used in turn. A rank may overwrite a slot two exchanges later because
it has seen all flags of the exchange between, and a rank raises that flag only after it has read
the slot.
"""

from __future__ import annotations

import mmap
import os
import select
import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from torpor_protocol.errors import GroupLost

SLOT_BYTES = 2**20  # larger tensors travel in pieces
_FLAG_BYTES = 64  # a cache line each, so that a rank's flag is not written beside another's
_YIELDS = 2_000  # turns of the waiting loop before it begins to sleep; about a millisecond
_PAUSE = 1e-4  # seconds
_LOOKS = 100  # pauses between two looks at whether the others live


def region_bytes(size: int) -> int:
    """Bytes of the shared memory of ``size`` ranks."""
    return _header_bytes(size) + 2 * size * SLOT_BYTES


def _header_bytes(size: int) -> int:
    return -(-size * _FLAG_BYTES // mmap.PAGESIZE) * mmap.PAGESIZE


class Exchange:
    """One rank's view. ``memory``: ``region_bytes(len(peers))`` bytes, zeros at first, mapped by
    all; ``peers``: process ids in the order of the ranks; ``timeout`` in seconds. Raises OSError
    where a process cannot be watched."""

    def __init__(self, memory: mmap.mmap, rank: int, peers: Sequence[int], timeout: float) -> None:
        size = len(peers)
        self.rank, self.size = rank, size
        self._timeout = timeout
        count = size * _FLAG_BYTES // 8
        self._flags = np.frombuffer(memory, np.int64, count)[:: _FLAG_BYTES // 8]
        slots = torch.frombuffer(memory, dtype=torch.uint8, offset=_header_bytes(size))
        self._slots = slots.view(2, size, SLOT_BYTES)
        self._sequence = 0
        self._others = [other for other in range(size) if other != rank]
        self._living = select.poll()
        self._ranks: dict[int, int] = {}
        try:
            for other in self._others:
                handle = os.pidfd_open(peers[other])
                self._ranks[handle] = other
                self._living.register(handle, select.POLLIN)
        except OSError:
            self.close()
            raise

    def show(self, dtype: torch.dtype, count: int, tensor: Tensor | None) -> Tensor:
        """What every rank shows, [size, count], valid until this rank's next call.

        ``tensor`` [count]: this rank's part, None to show nothing. All ranks call it alike. Raises
        GroupLost when another rank's process has ended or does not come.
        """
        self._sequence += 1
        shown = self._slots[self._sequence & 1].view(dtype)[:, :count]
        if tensor is not None:
            shown[self.rank].copy_(tensor)
        # A store is seen by others after the stores before it: x86 promises that, and this is used
        # nowhere else.
        self._flags[self.rank] = self._sequence
        for other in self._others:
            self._await(other)
        return shown

    def _await(self, other: int) -> None:
        flags, sequence = self._flags, self._sequence
        for _ in range(_YIELDS):
            if flags[other] >= sequence:
                return
            os.sched_yield()
        until = time.monotonic() + self._timeout
        pauses = 0
        while flags[other] < sequence:
            time.sleep(_PAUSE)
            pauses += 1
            if pauses % _LOOKS == 0:
                self._check(other, until)

    def _check(self, other: int, until: float) -> None:
        gone = sorted(self._ranks[handle] for handle, _ in self._living.poll(0))
        if gone and self._flags[other] < self._sequence:
            raise GroupLost("RankLost", f"Rank {gone[0]} of the stage has ended.")
        if time.monotonic() > until:
            raise GroupLost("RankLost", f"Rank {other} of the stage does not come.")

    def close(self) -> None:
        """The memory goes with the last tensor over it."""
        for handle in self._ranks:
            os.close(handle)
        self._ranks.clear()
