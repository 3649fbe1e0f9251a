"""The executor interface: deliver one call to every rank, give back what they answered.

Three methods are abstract; everything else is one ``collective_rpc``. An executor never repairs a
group: it raises :class:`~torpor_protocol.errors.GroupLost` and forms a new one when asked.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, overload

from torpor_engine.executor.place import Place
from torpor_protocol.config import EngineConfig, KVCacheSpec, MemoryReport
from torpor_protocol.errors import RankFailed
from torpor_protocol.requests import LoadProgress, RankState
from torpor_protocol.steps import ModelRunnerOutput, SchedulerOutput

CONTROL_TIMEOUT = 60.0


class Pending(Protocol):
    """A call under way. ``result`` gives one value per rank, in rank order."""

    def done(self) -> bool: ...

    def result(self) -> list[Any]: ...


def _nothing() -> None:
    return None


def _ignore(_: LoadProgress) -> None:
    return None


@dataclass
class ExecutorHooks:
    """What the core lends an executor.

    ``while_waiting`` is called at least every 100 ms during calls that take long, so that the core
    goes on taking messages. ``place`` names the replica to its supervisors.
    """

    run_dir: Path
    while_waiting: Callable[[], None] = _nothing
    on_progress: Callable[[LoadProgress], None] = _ignore
    place: Place = field(default_factory=Place)


class Executor(ABC):
    """One group of ranks. ``group`` is its id in hex, empty while there is none. ``waiting_for``: a
    sentence while supervisors are missing that come by themselves, else empty."""

    def __init__(self, config: EngineConfig, hooks: ExecutorHooks) -> None:
        self.config = config
        self.hooks = hooks
        self.group = ""
        self.waiting_for = ""
        self.step_timeout = config.recovery.step_timeout

    @abstractmethod
    def _init_executor(self) -> None:
        """Start the ranks of a new group; on return each of them waits for calls.

        Raises GroupLost when they do not all come up."""

    @overload
    def collective_rpc(
        self,
        method: str,
        timeout: float | None = None,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        non_block: Literal[False] = False,
        *,
        output_rank: int = -1,
        result_type: Any = Any,
    ) -> list[Any]: ...

    @overload
    def collective_rpc(
        self,
        method: str,
        timeout: float | None = None,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        non_block: Literal[True],
        output_rank: int = -1,
        result_type: Any = Any,
    ) -> Pending: ...

    @abstractmethod
    def collective_rpc(
        self,
        method: str,
        timeout: float | None = None,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        non_block: bool = False,
        *,
        output_rank: int = -1,
        result_type: Any = Any,
    ) -> list[Any] | Pending:
        """Run a registered worker method on every rank.

        One result per rank, in rank order; with ``output_rank`` set the others give None. Raises
        RankFailed (the first rank's error, typed), DeadlineMissed or another GroupLost."""

    @abstractmethod
    def check_health(self) -> None:
        """Raise GroupLost if a rank died or hangs; cheap, called when idle too."""

    # Group life

    def form(self) -> None:
        """Form a group anew. Any earlier one is gone afterwards."""
        self.disband()
        self._init_executor()

    def disband(self) -> None:
        """End every rank of the group; safe to repeat."""
        self.group = ""

    def shutdown(self) -> None:
        self.disband()

    def fileno(self) -> int | None:
        """A descriptor that becomes readable when a worker has something to tell."""
        return None

    def wire_rejected(self) -> dict[str, int]:
        """What the worker wire has refused so far, by reason."""
        return {}

    def rank_states(self) -> list[RankState]:
        """What is known of each rank without asking it."""
        return []

    # One collective call each

    def init_device(self) -> None:
        self.collective_rpc("init_device", self.config.recovery.load_timeout)

    def load_model(self) -> None:
        self.collective_rpc("load_model", self.config.recovery.load_timeout)

    def get_kv_cache_specs(self) -> list[KVCacheSpec]:
        return self.collective_rpc("get_kv_cache_specs", CONTROL_TIMEOUT, result_type=KVCacheSpec)

    def determine_available_memory(self) -> list[int]:
        timeout = self.config.recovery.load_timeout
        return self.collective_rpc("determine_available_memory", timeout, result_type=int)

    def profile_seconds(self) -> float:
        seconds = self.collective_rpc("profile_seconds", CONTROL_TIMEOUT, result_type=float)
        return float(max(seconds))

    def initialize_cache(self, num_blocks: int) -> None:
        self.collective_rpc("initialize_cache", self.config.recovery.load_timeout, (num_blocks,))

    def compile_or_warm_up_model(self) -> None:
        self.collective_rpc("compile_or_warm_up_model", self.config.recovery.load_timeout)

    def execute_model(self, output: SchedulerOutput, non_block: bool = False) -> Pending:
        """Queue the forward of one step; tokens come from :meth:`sample_tokens`."""
        call = self.collective_rpc(
            "execute_model", self.step_timeout, (output,), non_block=True, output_rank=0
        )
        if not non_block:
            call.result()
        return call

    def sample_tokens(self) -> ModelRunnerOutput:
        """Sample what the last ``execute_model`` computed.

        Raises RankFailed when the output rank has no tokens to give."""
        output_rank = self.config.parallel.output_rank
        results = self.collective_rpc(
            "sample_tokens",
            self.step_timeout,
            output_rank=output_rank,
            result_type=ModelRunnerOutput | None,
        )
        output = results[output_rank]
        if not isinstance(output, ModelRunnerOutput):
            raise RankFailed(output_rank, "NoOutput", f"Rank {output_rank} returned no tokens.")
        return output

    def step(self, output: SchedulerOutput) -> ModelRunnerOutput:
        """One step over all ranks: both calls are sent before the first answer is awaited."""
        forward = self.execute_model(output, non_block=True)
        sampled = self.sample_tokens()
        forward.result()
        return sampled

    def sleep(self, level: int) -> list[MemoryReport]:
        timeout = self.config.recovery.load_timeout
        return self.collective_rpc("sleep", timeout, (level,), result_type=MemoryReport)

    def wake_up(self, tags: list[str]) -> list[MemoryReport]:
        timeout = self.config.recovery.load_timeout
        return self.collective_rpc("wake_up", timeout, (tags,), result_type=MemoryReport)

    def memory_report(self) -> list[MemoryReport]:
        return self.collective_rpc("memory_report", CONTROL_TIMEOUT, result_type=MemoryReport)

    def reset(self) -> None:
        self.collective_rpc("reset", CONTROL_TIMEOUT)
