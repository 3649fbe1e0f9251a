"""Workers of one rank, brought up as the engine does it."""

from __future__ import annotations

from collections.abc import Callable

from torpor_protocol.config import EngineConfig, RankAssignment
from torpor_worker.worker import Worker


def lone_assignment() -> RankAssignment:
    return RankAssignment(rank=0, local_rank=0, local_size=1, group="0" * 32, store="")


def started(
    config: EngineConfig,
    num_blocks: int = 64,
    progress: Callable[[int, int, int, int], None] | None = None,
) -> Worker:
    """A worker that is ready for steps."""
    worker = Worker(config, lone_assignment(), progress)
    worker.init_device()
    worker.load_model()
    worker.get_kv_cache_specs()
    worker.determine_available_memory()
    worker.initialize_cache(num_blocks)
    worker.compile_or_warm_up_model()
    return worker
