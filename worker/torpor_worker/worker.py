"""The worker: one rank's device, groups, model, cache and runner, in the order of start-up.

    init_device -> load_model -> get_kv_cache_specs -> determine_available_memory
    -> initialize_cache -> compile_or_warm_up_model -> execute_model, sample_tokens, ...

Methods marked ``@callable_method`` are what the engine can call by name; every rank runs every
call. Nothing here knows of sockets: the rank process (or the engine, with one rank) calls it.
"""

from __future__ import annotations

import gc
import logging
import os
import time
from collections.abc import Callable
from functools import partial

from torpor_protocol.config import EngineConfig, KVCacheSpec, MemoryReport, RankAssignment
from torpor_protocol.methods import callable_method
from torpor_protocol.steps import ModelRunnerOutput, SchedulerOutput
from torpor_worker.attention.select import choose_attention, make_attention
from torpor_worker.loader import load_weights, reload_weights
from torpor_worker.memory import KV_CACHE, STAGING, WEIGHTS
from torpor_worker.memory.pages import trim_heap
from torpor_worker.memory_budget import kv_cache_bytes
from torpor_worker.models.cache_spec import get_kv_cache_spec
from torpor_worker.models.registry import build_model
from torpor_worker.parallel import init_groups
from torpor_worker.platforms import select_platform
from torpor_worker.runner.interface import Runner, row_limits
from torpor_worker.runner.select import choose_runner, triton_installed
from torpor_worker.runner.warmup import (
    blocks_for,
    largest_batch,
    profile_limits,
    run_largest_batch,
    warm_up,
)
from torpor_worker.sleeper import Sleeper
from torpor_worker.worker_parts import (
    Loaded,
    Place,
    WorkerNotReady,
    assemble_runner,
    attention_shape,
    memory_report,
    on_device,
)

log = logging.getLogger(__name__)

Progress = Callable[[int, int, int, int], None]


class Worker:
    """``progress``: told of loading as (tensors, of how many, bytes, of how many)."""

    def __init__(
        self,
        config: EngineConfig,
        assignment: RankAssignment,
        progress: Progress | None = None,
    ) -> None:
        self.config = config
        self.assignment = assignment
        self._progress = progress
        self._place: Place | None = None
        self._loaded: Loaded | None = None
        self._runner: Runner | None = None
        self._cache_blocks = 0
        self._profile_seconds = 0.0

    # Start-up, in this order

    @callable_method
    def init_device(self) -> None:
        """Claim the device and join the groups. Raises ConfigError."""
        platform = select_platform(self.config.platform)
        device = platform.claim(self.assignment.local_rank)
        platform.check_dtype(self.config.model.dtype)
        groups = init_groups(self.config.parallel, self.assignment, platform)
        snapshot = platform.memory_snapshot()
        choice = choose_runner(self.config.runner, device.type, triton_installed())
        self._place = Place(platform, groups, device, choice)
        log.info(
            "rank %d of %d is on %s with %.1f GiB free; runner %s, because %s",
            groups.rank,
            groups.world_size,
            device,
            snapshot.available / 2**30,
            choice.name,
            choice.reason,
        )

    @callable_method
    def load_model(self) -> None:
        """Build this rank's share and read its weights. Raises ModelError, MemoryBudgetError."""
        place = self._placed()
        pool = place.platform.pool()
        model = build_model(self.config, place.groups, pool)
        load_weights(model, self.config, place.groups, self._progress)
        name = choose_attention(place.choice.name, place.device.type)
        attention = make_attention(name, attention_shape(self.config, place))
        reload = partial(reload_weights, model, self.config, place.groups, self._progress)
        self._loaded = Loaded(model, attention, Sleeper(pool, reload, self._refill_cache))

    @callable_method
    def get_kv_cache_specs(self) -> KVCacheSpec:
        return get_kv_cache_spec(self.config, self._placed().groups)

    @callable_method
    def determine_available_memory(self) -> int:
        """Run the largest batch, then say how many bytes of KV cache this rank offers."""
        place = self._placed()
        self._profile(place, self._ready())
        trim_heap()
        available = place.platform.memory_snapshot().available
        spec, local = self.get_kv_cache_specs(), self.assignment.local_size
        return kv_cache_bytes(self.config, spec, available, local, place.device.type)

    @callable_method
    def profile_seconds(self) -> float:
        """How long the largest batch took; 0 when it has not been run."""
        return self._profile_seconds

    @callable_method
    def initialize_cache(self, num_blocks: int) -> None:
        """Allocate the KV cache, the null block included, and touch its pages."""
        place, loaded = self._placed(), self._ready()
        pool = place.platform.pool()
        pool.drop(KV_CACHE)
        loaded.attention.allocate(num_blocks, partial(pool.allocate, KV_CACHE))
        self._cache_blocks = num_blocks
        self._runner = assemble_runner(
            self.config, place, loaded.model, loaded.attention, num_blocks
        )

    @callable_method
    def compile_or_warm_up_model(self) -> None:
        """Everything that a first request would have to wait for otherwise."""
        warm_up(self._running(), row_limits(self.config), self._cache_blocks)

    # Steps

    @callable_method
    def execute_model(self, output: SchedulerOutput) -> None:
        """Raises WorkerAsleep, StepRefused."""
        self._ready().sleeper.check_awake()
        self._running().execute_model(output)

    @callable_method
    def sample_tokens(self) -> ModelRunnerOutput | None:
        """Tokens of the last step, on the output rank."""
        return self._running().sample_tokens()

    @callable_method
    def reset(self) -> None:
        """Free every row; whatever was in flight is dropped."""
        self._running().reset()

    # Sleep

    @callable_method
    def sleep(self, level: int) -> MemoryReport:
        """Release memory; the report says how much. May be repeated."""
        freed = self._ready().sleeper.sleep(level)
        return self._report(freed)

    @callable_method
    def wake_up(self, tags: list[str]) -> MemoryReport:
        """Restore these tags, all when there are none. May be repeated."""
        self._ready().sleeper.wake_up(tags)
        return self._report()

    @callable_method
    def memory_report(self) -> MemoryReport:
        return self._report()

    def shutdown(self) -> None:
        """Leave the groups and drop everything; the worker cannot be used afterwards."""
        place, self._place = self._place, None
        self._runner = None
        self._loaded = None
        if place is not None:
            pool = place.platform.pool()
            for tag in (KV_CACHE, WEIGHTS, STAGING):
                pool.drop(tag)
            place.groups.close()
        gc.collect()
        trim_heap()

    # Parts

    def _profile(self, place: Place, loaded: Loaded) -> None:
        """On a runner of its own whose layers share one small cache, so nothing is left behind."""
        full = row_limits(self.config)
        limits = profile_limits(full, place.device.type)
        blocks = blocks_for(largest_batch(limits), limits)
        scratch = make_attention(loaded.attention.name, attention_shape(self.config, place))
        scratch.allocate(blocks, partial(on_device, place.device), shared=True)
        runner = assemble_runner(self.config, place, loaded.model, scratch, blocks)
        started = time.monotonic()
        run_largest_batch(runner, limits)
        place.platform.synchronize()
        share = full.max_num_batched_tokens / limits.max_num_batched_tokens
        self._profile_seconds = (time.monotonic() - started) * share

    def _refill_cache(self) -> None:
        """A restored cache holds zeros on a CPU and anything elsewhere."""
        if self._placed().device.type != "cpu":
            self._ready().attention.clear()

    def _report(self, freed: int = 0) -> MemoryReport:
        platform = self._placed().platform
        return memory_report(platform, self.assignment.rank, os.getpid(), freed)

    def _placed(self) -> Place:
        if self._place is None:
            raise WorkerNotReady("This rank has no device yet.", "Call init_device first.")
        return self._place

    def _ready(self) -> Loaded:
        if self._loaded is None:
            raise WorkerNotReady("This rank has no model yet.", "Call load_model first.")
        return self._loaded

    def _running(self) -> Runner:
        if self._runner is None:
            raise WorkerNotReady("This rank has no KV cache yet.", "Call initialize_cache first.")
        return self._runner
