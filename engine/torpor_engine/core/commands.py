"""Sleep, wake and drain: one command at a time, in the order they came.

While the replica is not awake, requests that come are held here and ask for a wake-up themselves
where the configuration lets them. That includes a request that the API process took just before it
heard that the replica is on call no longer: what was taken is answered. A wake-up that comes while
a sleep still drains calls that sleep off.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torpor_engine.core.lifecycle import (
    ALL_TAGS,
    PROCESS_LEVEL,
    next_for_sleep,
    tags_to_wake,
)
from torpor_protocol.config import MemoryReport
from torpor_protocol.errors import GroupLost
from torpor_protocol.requests import (
    AddRequest,
    CommandReply,
    DrainCommand,
    OnCallCommand,
    SleepCommand,
    SleepTag,
    WakeCommand,
)

if TYPE_CHECKING:
    from torpor_engine.core.loop import Core
    from torpor_engine.scheduler import Scheduler

log = logging.getLogger(__name__)

Command = SleepCommand | WakeCommand | DrainCommand
NO_CALL = 0


class Commands:
    """The queue of commands and the requests that wait for its outcome."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.queue: deque[Command] = deque()
        self._held: deque[AddRequest] = deque()
        self._draining_since = 0.0
        self._last_activity = time.monotonic()
        self._level = core.config.wake.level

    # Requests

    @property
    def num_held(self) -> int:
        return len(self._held)

    def hold(self, request: AddRequest) -> bool:
        """Keep a request that comes while the replica sleeps or is about to."""
        core = self._core
        self.note_activity()
        if core.status.lifecycle not in ("Draining", "Sleeping", "Asleep", "Waking"):
            return False
        self._held.append(request)
        wanted = core.config.wake.on_request and core.status.lifecycle == "Asleep"
        if wanted and not any(isinstance(command, WakeCommand) for command in self.queue):
            self.queue.append(WakeCommand(NO_CALL))
        return True

    def set_on_call(self, command: OnCallCommand) -> None:
        """At once, whatever else is queued; the state is out before the answer."""
        self._core.status.on_call = command.value
        self._core.publish()
        self._core.publisher.reply(CommandReply(command.call))

    def drop_held(self, ids: set[int]) -> list[int]:
        dropped = [request.id for request in self._held if request.id in ids]
        self._held = deque(request for request in self._held if request.id not in ids)
        return dropped

    def note_activity(self) -> None:
        self._last_activity = time.monotonic()

    def release_held(self, scheduler: Scheduler) -> None:
        while self._held:
            scheduler.add(self._held.popleft())

    # Commands

    def advance(self) -> None:
        """Carry out what can be carried out now. Raises GroupLost from a running group only."""
        scheduler = self._core.scheduler
        if scheduler is None:
            return
        self._sleep_when_idle(scheduler)
        while self.queue:
            command = self.queue[0]
            if not self._draining_since:
                self._draining_since = time.monotonic()
            if not self._carry_out(scheduler, command):
                return
            self._draining_since = 0.0
            self.queue.popleft()

    def _sleep_when_idle(self, scheduler: Scheduler) -> None:
        idle = self._core.config.wake.idle_seconds
        status = self._core.status
        if not (status.woken_by == "request" and idle and not self.queue):
            return
        if status.lifecycle != "Awake" or scheduler.has_unfinished():
            return
        if time.monotonic() - self._last_activity > idle:
            self.queue.append(SleepCommand(NO_CALL, level=self._level))

    def _carry_out(self, scheduler: Scheduler, command: Command) -> bool:
        """Whether the command is done (and answered)."""
        match command:
            case SleepCommand():
                return self._sleep(scheduler, command)
            case WakeCommand():
                return self._wake(scheduler, command)
            case DrainCommand():
                if scheduler.has_unfinished() and self._core.status.lifecycle != "Asleep":
                    return False
                self._reply(command)
                return True

    def _reply(
        self, command: Command, error: str = "", fix: str = "", memory: Sequence[MemoryReport] = ()
    ) -> None:
        if command.call != NO_CALL:
            seconds = time.monotonic() - self._draining_since
            self._core.publisher.reply(
                CommandReply(command.call, error, fix, seconds, list(memory))
            )

    # Sleep

    def _sleep(self, scheduler: Scheduler, command: SleepCommand) -> bool:
        core = self._core
        step = next_for_sleep(core.status, command, scheduler.has_unfinished())
        if step == "drain":
            if any(isinstance(later, WakeCommand) for later in self.queue):
                core.status.enter("Awake")
                self.release_held(scheduler)
                self._reply(command, "A wake-up called this sleep off.", "Ask for sleep again.")
                return True
            if core.status.lifecycle != "Draining":
                core.status.enter("Draining")
                core.publish()
            return False
        # Whoever puts it to sleep knows the level wanted now; by itself it sleeps so too.
        self._level = command.level
        reports: list[MemoryReport] = []
        if step == "sleep":
            if command.mode == "abort":
                core.publisher.finished(scheduler.abort_all("abort"))
            reports = self._fall_asleep(scheduler, command.level)
        self._reply(command, memory=reports)
        if self._held and core.config.wake.on_request:
            self.queue.append(WakeCommand(NO_CALL))
        return True

    def _fall_asleep(self, scheduler: Scheduler, level: int) -> list[MemoryReport]:
        """Release what the level releases. A rank that fails in it costs the group, not the sleep:
        its processes end, which is level 3."""
        core = self._core
        started = time.monotonic()
        core.status.enter("Sleeping")
        core.publish()
        scheduler.preempt_all()
        reports: list[MemoryReport] = []
        reached = level
        try:
            if level < PROCESS_LEVEL:
                core.executor.reset()
                reports = core.executor.sleep(level)
        except GroupLost as loss:
            core.note_loss(loss)
            reached = PROCESS_LEVEL
        if reached == PROCESS_LEVEL:
            core.executor.disband()
        scheduler.reset_cache(core.group.num_blocks)
        core.status.slept(reached)
        core.publisher.slept(time.monotonic() - started)
        core.publish()
        log.info("Asleep at level %d after %.3f s.", reached, time.monotonic() - started)
        return reports

    # Wake

    def _wake(self, scheduler: Scheduler, command: WakeCommand) -> bool:
        core = self._core
        reports: list[MemoryReport] = []
        called = command.call != NO_CALL
        if core.status.lifecycle == "Asleep":
            tags = tags_to_wake(core.status, command.tags)
            core.status.woken_by = "call" if called else "request"
            reports = self._wake_tags(scheduler, tags) if tags else []
        elif called and core.status.woken_by:
            core.status.woken_by = "call"
            core.publish()
        self._reply(command, memory=reports)
        return True

    def _wake_tags(self, scheduler: Scheduler, tags: tuple[SleepTag, ...]) -> list[MemoryReport]:
        """All or nothing: ranks that cannot wake are ended and formed anew, whole."""
        core = self._core
        started = time.monotonic()
        whole = core.status.level == PROCESS_LEVEL
        everything = whole or set(tags) == set(core.status.asleep)
        core.status.enter("Waking")
        core.publish()
        reports: list[MemoryReport] = []
        try:
            if whole:
                core.form_awake()
            else:
                reports = core.executor.wake_up(list(tags))
            if everything:
                core.check_canary()
        except GroupLost as loss:
            core.note_loss(loss)
            core.form_awake()
            core.check_canary()
            tags = ALL_TAGS
        core.status.woke(ALL_TAGS if whole else tags)
        if core.status.lifecycle == "Awake":
            scheduler.reset_cache(core.group.num_blocks)
            self.release_held(scheduler)
        core.publisher.woke(time.monotonic() - started)
        core.publish()
        self.note_activity()
        log.info("Woke %s after %.3f s.", ", ".join(tags), time.monotonic() - started)
        return reports
