"""How much memory this process has, may have and uses: the kernel's files, in bytes.

In a pod the machine's total says nothing; the limit of the control group (version 1 or 2) does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/")


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


_V1 = _Layout("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = _Layout("memory.max", "memory.current", "inactive_file")


def process_resident() -> int:
    """Resident set size of this process: anonymous, file and shared pages."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0  # a kernel thread; no process of ours


def memory_snapshot(root: Path = _ROOT) -> MemorySnapshot:
    """The smaller of the machine and every control group above this process. ``root``: tests."""
    info = _meminfo(root)
    total, available = info["MemTotal"], info["MemAvailable"]
    for folder, layout in _groups(root):
        limit = _read_limit(folder / layout.limit)
        if limit is None:
            continue
        usage = int((folder / layout.usage).read_text())
        free = limit - usage + _stat(folder / "memory.stat", layout.inactive)
        total, available = min(total, limit), min(available, max(0, free))
    return MemorySnapshot(total, available)


def _meminfo(root: Path) -> dict[str, int]:
    lines = (root / "proc/meminfo").read_text().splitlines()
    fields = (line.split() for line in lines)
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in fields}


def _groups(root: Path) -> Iterator[tuple[Path, _Layout]]:
    """The group of this process and all above it; a container may see only the top one."""
    lines = (root / "proc/self/cgroup").read_text().splitlines()
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            top, layout = root / "sys/fs/cgroup", _V2
        elif "memory" in controllers.split(","):
            top, layout = root / "sys/fs/cgroup/memory", _V1
        else:
            continue
        group = top / path.lstrip("/")
        for folder in [group, *group.parents]:
            if folder.is_relative_to(top):
                yield folder, layout


def _read_limit(path: Path) -> int | None:
    """None where there is no such group or no limit."""
    if not path.is_file():
        return None
    text = path.read_text().strip()
    return None if text == "max" else int(text)


def _stat(path: Path, name: str) -> int:
    for line in path.read_text().splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0
