"""How a rank joins the world of its group.

The group id prefixes every key in the store: a process of an older formation that comes late finds
nobody under its own id and runs into its timeout, it never meets the new group.
"""

from __future__ import annotations

import os
from datetime import timedelta
from urllib.parse import urlsplit

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, PrefixStore, Store, TCPStore

from torpor_protocol.config import ParallelConfig, RankAssignment
from torpor_protocol.errors import ConfigError, GroupLost
from torpor_worker.parallel.collectives import (
    DistributedCollectives,
    SharedCollectives,
    StageCollectives,
)
from torpor_worker.parallel.distributed import DistributedGroups
from torpor_worker.parallel.groups import ParallelGroups, SingleRank
from torpor_worker.parallel.shared_region import open_exchange
from torpor_worker.platforms.base import Platform

# For meeting and for each collective after it. A dead peer is an error at once; a hung one is the
# step deadline's affair, so this only has to be longer than the slowest step.
TIMEOUT_SECONDS = 600.0


def init_groups(
    parallel: ParallelConfig,
    assignment: RankAssignment,
    platform: Platform,
    timeout: float = TIMEOUT_SECONDS,
) -> ParallelGroups:
    """Join the world; returns when every rank has. ``timeout`` in seconds.

    Raises ConfigError (store address) and GroupLost (the others did not come).
    """
    if parallel.world_size == 1:
        return SingleRank()
    _set_interface(assignment)
    limit = timedelta(seconds=timeout)
    try:
        store = PrefixStore(
            assignment.group,
            _open_store(assignment.store, parallel.world_size, assignment.rank, limit),
        )
        dist.init_process_group(
            platform.distributed_backend,
            store=store,
            rank=assignment.rank,
            world_size=parallel.world_size,
            timeout=limit,
            device_id=platform.device if platform.device.type != "cpu" else None,
        )
        return DistributedGroups(
            assignment.rank,
            parallel.tensor,
            parallel.pipeline,
            platform.device,
            _join_stage(parallel, assignment.rank, platform.device, store, timeout),
        )
    except (dist.DistError, RuntimeError, ValueError) as error:
        raise GroupLost(
            "GroupForming",
            f"Rank {assignment.rank} could not join its group: {error}.",
            "Check that the ranks reach each other over the network.",
        ) from error


def _join_stage(
    parallel: ParallelConfig, rank: int, device: torch.device, store: Store, timeout: float
) -> StageCollectives:
    """Every rank makes the groups of all stages, in one order: torch wants it so."""
    firsts = range(0, parallel.world_size, parallel.tensor)
    stages = [list(range(first, first + parallel.tensor)) for first in firsts]
    groups = [dist.new_group(ranks) for ranks in stages]
    stage, within = divmod(rank, parallel.tensor)
    exchange = None
    if device.type == "cpu" and parallel.tensor > 1:
        own = PrefixStore(f"stage {stage}", store)
        exchange = open_exchange(own, within, parallel.tensor, timeout)
    if exchange is None:
        return DistributedCollectives(groups[stage], stages[stage], within)
    return SharedCollectives(exchange)


def _open_store(address: str, world_size: int, rank: int, timeout: timedelta) -> Store:
    """``file:///path`` or ``tcp://ip:port``; rank 0 serves the TCP store."""
    parts = urlsplit(address)
    if parts.scheme == "file" and parts.path:
        store: Store = FileStore(parts.path, world_size)
    elif parts.scheme == "tcp" and parts.hostname and parts.port:
        store = TCPStore(parts.hostname, parts.port, world_size, rank == 0, timeout)
    else:
        raise ConfigError(
            f"The rendezvous address {address!r} is none.",
            "Write file:///path on one machine, tcp://ip:port between pods.",
        )
    store.set_timeout(timeout)
    return store


def _set_interface(assignment: RankAssignment) -> None:
    """gloo and NCCL pick an interface by host name otherwise, which in pods is often wrong."""
    interface = assignment.interface
    if not interface and assignment.store.startswith("file:"):
        interface = "lo"
    if interface:
        os.environ["GLOO_SOCKET_IFNAME"] = interface
        os.environ["NCCL_SOCKET_IFNAME"] = interface
