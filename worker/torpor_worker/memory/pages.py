"""Anonymous pages and what the kernel knows about them: the ground of the CPU pool.

Linux only, like the workers. ``MADV_DONTNEED`` on private anonymous memory frees the pages at once
and keeps the mapping; the next touch gives zeros.
"""

from __future__ import annotations

import ctypes
import mmap
from functools import cache

from torpor_protocol.errors import MemoryBudgetError

HUGE_PAGE = 2 * 2**20
MADV_POPULATE_WRITE = 23  # Linux 5.14; not in Python's mmap module

# Of glibc's mallopt.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEPT = 2**30
_KEPT_AT_MOST = 2**25  # for an mmap threshold, before glibc 2.35


def round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def trim_heap() -> None:
    """Give freed heap pages back to the system; a no-op where the C library cannot (musl)."""
    trim = getattr(_libc(), "malloc_trim", None)
    if trim is not None:
        trim(0)


def keep_heap() -> None:
    """Let freed heap pages serve the next step instead of going back after every operation.

    By default glibc maps each result of a few hundred KiB anew and unmaps it when it is freed, and
    the page faults cost an operation on 512 tokens more than its arithmetic (RMS norm: 1.57 ms,
    0.14 without). ``trim_heap`` still gives everything back. A no-op without glibc.
    """
    mallopt = getattr(_libc(), "mallopt", None)
    if mallopt is None:
        return
    # Setting either ends glibc's own adaptation, so the second only after the first worked.
    if mallopt(_M_MMAP_THRESHOLD, _KEPT) or mallopt(_M_MMAP_THRESHOLD, _KEPT_AT_MOST):
        mallopt(_M_TRIM_THRESHOLD, _KEPT)


class Pages:
    """A private anonymous mapping, aligned to huge pages and backed when first touched.

    ``address`` and ``size`` in bytes; both multiples of HUGE_PAGE. ``memory[start:start + size]``
    is the usable part. Raises MemoryBudgetError when the address space cannot be had.
    """

    def __init__(self, size: int) -> None:
        self.size = round_up(size, HUGE_PAGE)
        # One huge page more, because mmap cannot be asked for an alignment.
        try:
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            self.memory = mmap.mmap(-1, self.size + HUGE_PAGE, flags=flags)
        except (OSError, OverflowError, ValueError) as error:
            raise MemoryBudgetError(
                f"{size} bytes of memory cannot be mapped: {error}.",
                "Lower --kv-cache-memory, use more ranks, or give the worker more memory.",
            ) from error
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.address = round_up(base, HUGE_PAGE)
        self.start = self.address - base
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._advise(mmap.MADV_HUGEPAGE)

    def _advise(self, advice: int, size: int | None = None) -> bool:
        """False where the kernel does not know the advice (huge pages compiled out, old kernel)."""
        try:
            self.memory.madvise(advice, self.start, self.size if size is None else size)
        except OSError:
            return False
        return True

    def discard(self) -> int:
        """Free all pages; returns the bytes that were resident."""
        freed = self.resident()
        self.memory.madvise(mmap.MADV_DONTNEED, self.start, self.size)
        return freed

    def populate(self, size: int) -> None:
        """Back the first ``size`` bytes, which must not have contents worth keeping."""
        size = round_up(size, mmap.PAGESIZE)
        if not self._advise(MADV_POPULATE_WRITE, size):
            for offset in range(self.start, self.start + size, mmap.PAGESIZE):
                self.memory[offset] = 0

    def resident(self) -> int:
        """Bytes backed by memory now."""
        count = self.size // mmap.PAGESIZE
        vector = (ctypes.c_ubyte * count)()
        address, size = ctypes.c_void_p(self.address), ctypes.c_size_t(self.size)
        if _libc().mincore(address, size, vector) != 0:
            raise OSError(ctypes.get_errno(), "mincore")
        return bytes(vector).count(1) * mmap.PAGESIZE  # bit 0: resident; no other is used
