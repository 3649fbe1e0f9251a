"""Every connection is an open file: how many of them both ports may have in this process.

Containers often start with a soft limit of 1024 files. A process that has none left accepts on no
port, so its probes would fail because of what clients do.
"""

from __future__ import annotations

import resource

# What is no connection of a client: logs, the model's files, the core's link, connections that are
# just being refused.
SPARE = 128


def make_room(connections: int) -> int:
    """Raise this process's soft limit for so many connections at each of two ports, as far as the
    hard one allows; gives how many each port may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted, allowed = plan_room(soft, hard, connections)
    if wanted != soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return allowed


def plan_room(soft: int, hard: int, connections: int) -> tuple[int, int]:
    """The soft limit to have, and connections per port under it. Limits as getrlimit tells them."""
    needed = 2 * connections + SPARE
    if _reaches(soft, needed):
        return soft, connections
    limit = needed if _reaches(hard, needed) else hard
    return limit, max(1, (limit - SPARE) // 2)


def _reaches(limit: int, needed: int) -> bool:
    return limit == resource.RLIM_INFINITY or limit >= needed
