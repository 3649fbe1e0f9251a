"""How many cores the pod may use: a limit of CPU time does not show in the affinity mask."""

from __future__ import annotations

import math
from pathlib import Path

from torpor_worker.control_groups import ROOT, control_groups

NO_LIMIT = 2**31


def cpu_limit(root: Path = ROOT) -> int:
    """Cores, rounded up; NO_LIMIT where no control group above this process limits them."""
    try:
        groups = list(control_groups("cpu", root))
    except OSError:
        return NO_LIMIT
    return min((_limit_of(folder, version) for folder, version in groups), default=NO_LIMIT)


def _limit_of(folder: Path, version: int) -> int:
    try:
        if version == 2:
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text()
            period = (folder / "cpu.cfs_period_us").read_text()
        # No limit: "max" in version 2, -1 in version 1.
        return math.ceil(int(quota) / int(period)) if int(quota) > 0 else NO_LIMIT
    except (OSError, ValueError, ZeroDivisionError):
        return NO_LIMIT
