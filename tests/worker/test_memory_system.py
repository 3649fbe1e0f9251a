"""Memory limits are read from whatever control groups the kernel has."""

from __future__ import annotations

from pathlib import Path

import pytest

from torpor_worker.memory.system import MemorySnapshot, memory_snapshot, process_resident

KIB, MIB, GIB = 2**10, 2**20, 2**30
MEMINFO = f"MemTotal: {16 * GIB // KIB} kB\nMemFree: 1 kB\nMemAvailable: {8 * GIB // KIB} kB\n"
UNLIMITED = 9223372036854771712


def tree(root: Path, cgroup: str, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": MEMINFO, "proc/self/cgroup": cgroup, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def version2(folder: str, limit: str, usage: int, cache: int = 0) -> dict[str, str]:
    top = f"sys/fs/cgroup/{folder}"
    return {
        f"{top}/memory.max": f"{limit}\n",
        f"{top}/memory.current": f"{usage}\n",
        f"{top}/memory.stat": f"anon 5\ninactive_file {cache}\n",
    }


def version1(folder: str, limit: int, usage: int, cache: int = 0) -> dict[str, str]:
    top = f"sys/fs/cgroup/memory/{folder}"
    return {
        f"{top}/memory.limit_in_bytes": f"{limit}\n",
        f"{top}/memory.usage_in_bytes": f"{usage}\n",
        f"{top}/memory.stat": f"inactive_file 7\ntotal_inactive_file {cache}\n",
    }


@pytest.mark.parametrize(
    ("cgroup", "files", "total", "available"),
    [
        ("", {}, 16 * GIB, 8 * GIB),
        ("0::/\n", {}, 16 * GIB, 8 * GIB),
        ("0::/\n", version2("", "max", GIB), 16 * GIB, 8 * GIB),
        ("0::/\n", version2("", str(4 * GIB), GIB), 4 * GIB, 3 * GIB),
        ("0::/\n", version2("", str(4 * GIB), GIB, 512 * MIB), 4 * GIB, 3 * GIB + 512 * MIB),
        ("0::/\n", version2("", str(4 * GIB), 5 * GIB), 4 * GIB, 0),
        ("0::/a/b\n", version2("a", str(2 * GIB), GIB), 2 * GIB, GIB),
        ("0::/a/b\n", version2("a/b", "max", GIB) | version2("a", str(GIB), 0), GIB, GIB),
        ("9:memory:/pod\n", version1("", 3 * GIB, GIB, MIB), 3 * GIB, 2 * GIB + MIB),
        ("9:cpu:/x\n8:memory:/pod\n", version1("pod", UNLIMITED, GIB), 16 * GIB, 8 * GIB),
    ],
)
def test_snapshot(
    tmp_path: Path, cgroup: str, files: dict[str, str], total: int, available: int
) -> None:
    root = tree(tmp_path, cgroup, files)
    assert memory_snapshot(root) == MemorySnapshot(total, available)


def test_this_machine() -> None:
    snapshot = memory_snapshot()
    assert 0 < snapshot.available <= snapshot.total
    assert 0 < process_resident() <= snapshot.total
