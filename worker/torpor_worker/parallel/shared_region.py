"""How the ranks of a stage come to map the same memory, where they are on one machine.

The first rank makes a memory file that has no name and the others open it through its process, so
there is nothing to remove whoever is killed when. Every rank tells how it fared, and the memory is
used only if all could map it.
"""

from __future__ import annotations

import logging
import mmap
import os
import platform
import secrets
from pathlib import Path

from torch._C._distributed_c10d import Store

from torpor_worker.parallel.exchange import Exchange, region_bytes

log = logging.getLogger(__name__)

# Where stores become visible in the order in which they were made, which the exchange relies on.
_ORDERED = ("x86_64", "AMD64")
_NONE = -1


def open_exchange(store: Store, rank: int, size: int, timeout: float) -> Exchange | None:
    """The exchange of a stage's ranks, or None, on every rank alike, where they share no memory.

    ``store``: of this stage alone; ``rank`` in the stage; ``timeout`` in seconds of each exchange.
    """
    store.set(f"place {rank}", f"{os.getpid()} {_machine()}")
    places = [store.get(f"place {other}").decode().split(" ", 1) for other in range(size)]
    peers = [int(pid) for pid, _ in places]
    together = len({machine for _, machine in places}) == 1 and platform.machine() in _ORDERED
    if not together:
        log.info("The ranks of the stage share no memory; they exchange over sockets.")
        return None
    file = _open_region(store, rank, peers)
    exchange = _map_region(file, rank, peers, timeout)
    store.set(f"mapped {rank}", "yes" if exchange else "no")
    mapped = [store.get(f"mapped {other}") == b"yes" for other in range(size)]
    if file != _NONE:
        os.close(file)
    if exchange and not all(mapped):
        exchange.close()
        return None
    return exchange


def _machine() -> str:
    """What processes that can open each other's files have in common."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:  # hidden by a sandbox
        return f"unknown {secrets.token_hex(8)}"


def _open_region(store: Store, rank: int, peers: list[int]) -> int:
    """A file descriptor of the memory, or _NONE."""
    file = _NONE
    try:
        if rank == 0:
            file = os.memfd_create("torpor-exchange")
            os.ftruncate(file, region_bytes(len(peers)))
        else:
            theirs = int(store.get("file"))
            file = os.open(f"/proc/{peers[0]}/fd/{theirs}", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        log.info("Rank %d of the stage cannot share memory: %s.", rank, error)
    if rank == 0:
        store.set("file", str(file))
    return file


def _map_region(file: int, rank: int, peers: list[int], timeout: float) -> Exchange | None:
    if file == _NONE:
        return None
    try:
        memory = mmap.mmap(file, region_bytes(len(peers)))
        return Exchange(memory, rank, peers, timeout)
    except (OSError, ValueError) as error:
        log.info("Rank %d of the stage cannot map its memory: %s.", rank, error)
        return None
