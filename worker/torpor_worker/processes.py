"""What the worker asks of Linux about processes: who dies with whom, and what state one is in.

Reads ``/proc`` directly, because ``psutil`` opens several files for each answer and the watch asks
for every rank twice a second.
"""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path
from typing import NamedTuple

from torpor_worker.cpu_limit import cpu_limit

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")
_SWITCHES = ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")
GONE = ""


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def die_with_parent(parent: int) -> None:
    """Let the kernel SIGKILL this process when its parent dies; exit at once if it already has."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies, so that none can be lost."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _stat(pid: int) -> list[str]:
    """The fields of ``/proc/<pid>/stat`` after the command's name, or [] when it is gone."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


class Sighting(NamedTuple):
    """What a process was doing: its state as in ``ps`` (R, S, D, T, t, Z, ...), GONE without one;
    and how often it has been switched away from so far, which tells a process that waits for a
    slow disk again and again from one that waits for ever."""

    state: str
    switches: int


def sight(pid: int) -> Sighting:
    """Of the process's main thread."""
    try:
        lines = (_PROC / str(pid) / "status").read_text(errors="replace").splitlines()
    except OSError:
        return Sighting(GONE, 0)
    fields = dict(line.partition(":")[::2] for line in lines)
    switches = sum(int(fields.get(name, "0")) for name in _SWITCHES)
    return Sighting(fields["State"].split()[0], switches)


def resident_bytes(pid: int) -> int:
    """Resident memory, pages shared with others included; 0 when the process is gone."""
    try:
        return int((_PROC / str(pid) / "statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def children_of(parent: int) -> list[int]:
    """Living and dead (not yet reaped) children of a process."""
    pids = (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())
    return [pid for pid in pids if _stat(pid)[1:2] == [str(parent)]]


def thread_count() -> int:
    """Threads of this process, those of libraries included."""
    return len(list((_PROC / "self" / "task").iterdir()))


def threads_per_rank(local_size: int) -> int:
    """The cores this process may use, shared evenly; ``OMP_NUM_THREADS`` overrules as usual."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    cores = min(len(os.sched_getaffinity(0)), cpu_limit())
    return max(1, cores // local_size)


def kill(pid: int) -> None:
    """SIGKILL; a process that is already gone is no error."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def sweep_orphans(keep: int) -> list[tuple[int, int]]:
    """SIGKILL every child but ``keep`` and reap those that are dead: (pid, exit status) each.

    A status is the exit code, or minus the signal that killed the process."""
    reaped = []
    for pid in children_of(os.getpid()):
        if pid == keep:
            continue
        kill(pid)
        found, wait_status = os.waitpid(pid, os.WNOHANG)
        if found:
            reaped.append((pid, os.waitstatus_to_exitcode(wait_status)))
    return reaped
