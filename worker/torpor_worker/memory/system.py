"""How much memory this process has, may have and uses: the kernel's files, in bytes.

In a pod the machine's total says nothing; the limit of the control group (version 1 or 2) does.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torpor_worker.control_groups import ROOT, control_groups, read_value


@dataclass(frozen=True)
class MemorySnapshot:
    """Bytes. ``available``: what can be allocated before something is killed or swapped."""

    total: int
    available: int


@dataclass(frozen=True)
class _Layout:
    """Names of one control group version's files."""

    limit: str
    usage: str
    inactive: str  # line of memory.stat: page cache that is given up on demand


_LAYOUTS = {
    1: _Layout("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: _Layout("memory.max", "memory.current", "inactive_file"),
}


def process_resident() -> int:
    """Resident set size of this process: anonymous, file and shared pages."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0  # a kernel thread; no process of ours


def memory_snapshot(root: Path = ROOT) -> MemorySnapshot:
    """The smaller of the machine and every control group above this process. ``root``: tests."""
    info = _meminfo(root)
    total, available = info["MemTotal"], info["MemAvailable"]
    for folder, version in control_groups("memory", root):
        layout = _LAYOUTS[version]
        limit = _read_limit(folder / layout.limit)
        if limit is None:
            continue
        usage = int((folder / layout.usage).read_text())
        free = limit - usage + (read_value(folder / "memory.stat", layout.inactive) or 0)
        total, available = min(total, limit), min(available, max(0, free))
    return MemorySnapshot(total, available)


def _meminfo(root: Path) -> dict[str, int]:
    lines = (root / "proc/meminfo").read_text().splitlines()
    fields = (line.split() for line in lines)
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in fields}


def _read_limit(path: Path) -> int | None:
    """None where there is no such group or no limit."""
    if not path.is_file():
        return None
    text = path.read_text().strip()
    return None if text == "max" else int(text)
