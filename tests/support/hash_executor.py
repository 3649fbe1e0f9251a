"""The core without workers: an executor over the hash runner.

``HashExecutor.faults`` lists what goes wrong at which call, so that every loss happens where a test
wants it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from core_thread import CoreThread
from hash_model import HashRunner
from torpor_engine.executor import Executor
from torpor_protocol.config import EngineConfig, KVCacheSpec, MemoryReport
from torpor_protocol.errors import GroupLost

Fault = Callable[[str], None]


class Answered(msgspec.Struct):
    values: list[Any]

    def done(self) -> bool:
        return True

    def result(self) -> list[Any]:
        return self.values


class HashExecutor(Executor):
    """One rank that exists only as a mirror. ``calls`` is the log of methods that were called."""

    faults: list[Fault]
    calls: list[str]

    def _init_executor(self) -> None:
        self.formed = getattr(self, "formed", 0) + 1
        self.group = f"{self.formed:032x}"
        self.runner: HashRunner | None = None

    def collective_rpc(  # type: ignore[override]
        self,
        method: str,
        timeout: float | None = None,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        non_block: bool = False,
        *,
        output_rank: int = -1,
        result_type: Any = Any,
    ) -> list[Any] | Answered:
        self.calls.append(method)
        for fault in list(self.faults):
            fault(method)
        if not self.group:
            raise GroupLost("RankLost", "There is no group.")
        value = getattr(self, f"do_{method}", lambda *_: None)(*args)
        return Answered([value]) if non_block else [value]

    def check_health(self) -> None:
        for fault in list(self.faults):
            fault("check_health")

    def do_get_kv_cache_specs(self) -> KVCacheSpec:
        return KVCacheSpec(2, 2, 16, self.config.cache.block_size, "float32", page_bytes=1024)

    def do_determine_available_memory(self) -> int:
        return self.config.cache.kv_cache_memory or 2**40

    def do_profile_seconds(self) -> float:
        return 0.01

    def do_initialize_cache(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.do_reset()

    def do_reset(self) -> None:
        self.runner = HashRunner(self.config, self.num_blocks)

    def do_execute_model(self, output: Any) -> None:
        assert self.runner is not None, "a step ran while the cache was asleep"
        self.pending = self.runner.execute(output)

    def do_sample_tokens(self) -> Any:
        return self.pending

    def do_sleep(self, level: int) -> MemoryReport:
        self.runner = None
        return MemoryReport(0, 1, 0, 0, 0, freed=level)

    def do_wake_up(self, tags: list[str]) -> MemoryReport:
        if "kv_cache" in tags:
            self.do_reset()
        return MemoryReport(0, 1, 0, 0, 0)


def hash_core(config: EngineConfig, run_dir: Path, *faults: Fault) -> CoreThread:
    """A core over the hash runner, with these faults."""
    HashExecutor.faults = list(faults)
    HashExecutor.calls = []
    target = "hash_executor:HashExecutor"
    return CoreThread(msgspec.structs.replace(config, executor=target), run_dir)
