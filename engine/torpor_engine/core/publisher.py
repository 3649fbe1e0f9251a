"""What the core tells the API process: tokens at once, state when it changes, figures at times."""

from __future__ import annotations

import time

import msgspec

from torpor_engine.core.inbox import Inbox
from torpor_engine.core.lifecycle import Status
from torpor_engine.executor import Executor
from torpor_engine.scheduler import Scheduler
from torpor_protocol.arrays import EMPTY
from torpor_protocol.config import EngineConfig
from torpor_protocol.errors import GroupLost, TorporError
from torpor_protocol.requests import (
    CommandReply,
    EngineState,
    EngineStats,
    Finished,
    GroupEvent,
    LoadProgress,
    StepOutputs,
)

STATS_SECONDS = 0.1
STATE_SECONDS = 1.0


class Publisher:
    """The one place that sends to the API process."""

    def __init__(
        self, inbox: Inbox, config: EngineConfig, executor_name: str, executor: Executor
    ) -> None:
        self._inbox = inbox
        self._config = config
        self._executor_name = executor_name
        self._executor = executor
        self._sent: EngineState | None = None
        self._told: tuple[object, ...] = ()
        self._looked_at = 0.0
        self._stats_at = 0.0
        self._stats = EngineStats()
        self._lost_at = 0.0
        self._last_loss: GroupEvent | None = None
        self._sleep_seconds = -1.0
        self._wake_seconds = -1.0
        self.load: LoadProgress | None = None

    # Tokens

    def outputs(
        self, outputs: StepOutputs, scheduler: Scheduler, held: int, seconds: float
    ) -> None:
        stats = self._due_stats(scheduler, held, paused=False)
        self._inbox.send(msgspec.structs.replace(outputs, stats=stats, step_seconds=seconds))

    def stats(self, scheduler: Scheduler, held: int, status: Status) -> None:
        """Statistics that no step carries: of what waits, and of what was aborted."""
        stats = self._due_stats(scheduler, held, paused=not status.steps)
        if stats is not None:
            self._inbox.send(StepOutputs(EMPTY, EMPTY, stats=stats))

    def _due_stats(self, scheduler: Scheduler, held: int, *, paused: bool) -> EngineStats | None:
        """Changed statistics: now and then while busy, at once when nothing is left to do."""
        now = time.monotonic()
        if scheduler.has_unfinished() and now - self._stats_at < STATS_SECONDS:
            return None
        stats = scheduler.stats(held, paused=paused)
        if stats == self._stats:
            return None
        self._stats, self._stats_at = stats, now
        return stats

    def finished(self, ended: list[Finished]) -> None:
        if ended:
            self._inbox.send(StepOutputs(EMPTY, EMPTY, finished=ended))

    def reply(self, reply: CommandReply) -> None:
        self._inbox.send(reply)

    # State

    def lost(self, loss: GroupLost) -> None:
        self._lost_at = time.monotonic()
        self._last_loss = GroupEvent(
            self._executor.group, loss.reason, loss.cause, time=time.time()
        )

    def recovered(self) -> None:
        if self._last_loss is not None:
            seconds = time.monotonic() - self._lost_at
            self._last_loss = msgspec.structs.replace(self._last_loss, recover_seconds=seconds)

    def slept(self, seconds: float) -> None:
        self._sleep_seconds = seconds

    def woke(self, seconds: float) -> None:
        self._wake_seconds = seconds

    def state(self, status: Status, num_blocks: int, restarts: int) -> None:
        """Send the state if it changed; figures that move all the time at most once a second.

        Asked in every turn of the loop, so the whole state is put together only when it may go.
        """
        story = self._story(status, num_blocks, restarts)
        now = time.monotonic()
        urgent = story != self._told
        if not urgent and now - self._looked_at < STATE_SECONDS:
            return
        self._told, self._looked_at = story, now
        state = self._state(status, num_blocks, restarts)
        if urgent or state != self._sent:
            self._sent = state
            self._inbox.send(state)

    def failed(self, status: Status, error: TorporError) -> None:
        state = self._state(status, 0, 0)
        self._inbox.send(msgspec.structs.replace(state, message=str(error)))

    def _story(self, status: Status, num_blocks: int, restarts: int) -> tuple[object, ...]:
        """What the state tells, without figures that move all the time."""
        return (
            status.lifecycle,
            status.level,
            status.asleep,
            status.reason,
            status.message,
            status.on_call,
            status.woken_by,
            self._executor.group,
            self._executor.waiting_for,
            num_blocks,
            restarts,
            self._last_loss,
            self._sleep_seconds,
            self._wake_seconds,
        )

    def _state(self, status: Status, num_blocks: int, restarts: int) -> EngineState:
        return EngineState(
            lifecycle=status.lifecycle,
            level=status.level,
            asleep=status.asleep,
            group=self._executor.group,
            executor=self._executor_name,
            runner=self._config.runner,
            reason=status.reason,
            message=status.message,
            ranks=self._executor.rank_states(),
            load=self.load,
            kv_blocks=num_blocks,
            block_size=self._config.cache.block_size,
            max_model_len=self._config.model.max_model_len,
            restarts=restarts,
            last_loss=self._last_loss,
            last_sleep_seconds=self._sleep_seconds,
            last_wake_seconds=self._wake_seconds,
            wire_rejected=self._executor.wire_rejected(),
            on_call=status.on_call,
            woken_by=status.woken_by,
            waiting_for=self._executor.waiting_for,
        )
