"""The control groups that this process is in, as the kernel shows them: versions 1 and 2.

A container often sees only the top of the tree, which then is its own group.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/")


class ControlGroup(NamedTuple):
    """``version``: 1 or 2, whose files have other names."""

    folder: Path
    version: int


def control_groups(controller: str, root: Path = ROOT) -> Iterator[ControlGroup]:
    """The group of this process for one controller and all above it, whether they are visible or
    not. ``root``: for tests."""
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            top, version = root / "sys/fs/cgroup", 2
        elif controller in controllers.split(","):
            top, version = root / "sys/fs/cgroup" / controller, 1
        else:
            continue
        group = top / path.lstrip("/")
        for folder in [group, *group.parents]:
            if folder.is_relative_to(top):
                yield ControlGroup(folder, version)


def read_value(path: Path, name: str) -> int | None:
    """The number after ``name`` in a file of such lines; None without the file or the line."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        key, _, value = line.partition(" ")
        if key == name and value.strip().isdigit():
            return int(value)
    return None
