"""The core loop: take messages, carry out commands, step, hand tokens back.

Everything that may be lost with a group lives here or in the scheduler: requests, their tokens, the
queue. Whatever a worker does ends in GroupLost, and the answer to that is always the same: form a
group anew and let the scheduler continue what it has.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from pathlib import Path

from torpor_engine.core.canary import run_canary
from torpor_engine.core.commands import Commands
from torpor_engine.core.group import Group, LossBudget
from torpor_engine.core.inbox import Inbox
from torpor_engine.core.lifecycle import Status
from torpor_engine.core.publisher import Publisher
from torpor_engine.core.settings import CoreSettings
from torpor_engine.executor import ExecutorHooks, executor_class, select_executor
from torpor_engine.scheduler import Scheduler
from torpor_protocol.errors import GroupLost, TorporError
from torpor_protocol.requests import (
    AbortRequests,
    AddRequest,
    ApiToCore,
    Finished,
    LoadProgress,
    OnCallCommand,
    ShutdownCommand,
)

log = logging.getLogger(__name__)

IDLE_SECONDS = 0.5
BLOCKED_SECONDS = 0.02


class Stopped(Exception):
    """Unwinds a wait for the group when the replica is to end."""


class Core:
    """One replica's core. ``run`` returns after :meth:`stop` or when the API process is gone."""

    def __init__(self, settings: CoreSettings, inbox: Inbox) -> None:
        self.config = settings.config
        self._inbox = inbox
        self._stopping = False
        choice = select_executor(self.config)
        log.info("Executor %s: %s.", choice.name, choice.reason)
        hooks = ExecutorHooks(
            run_dir=Path(settings.run_dir),
            while_waiting=self._while_waiting,
            on_progress=self._on_progress,
            place=settings.place,
        )
        self.executor = executor_class(choice)(self.config, hooks)
        self.group = Group(self.config, self.executor)
        self.status = Status()
        self.losses = LossBudget(self.config.recovery)
        self.publisher = Publisher(inbox, self.config, choice.name, self.executor)
        self.commands = Commands(self)
        self.scheduler: Scheduler | None = None
        self._golden: tuple[int, ...] = ()
        self._early: deque[AddRequest] = deque()

    # Outer life

    def run(self) -> None:
        """Serve until stopped. Raises the TorporError that ends the replica."""
        try:
            self._serve()
        except Stopped:
            log.info("Stopped while waiting for the group.")

    def _serve(self) -> None:
        self._bring_up()
        self._golden = self._canary()
        self.scheduler = Scheduler(self.config, self.group.num_blocks)
        while self._early:
            self.scheduler.add(self._early.popleft())
        self.status.enter("Awake")
        self.publish()
        while not self._stopping:
            try:
                self._turn(self.scheduler)
            except GroupLost as loss:
                self._on_loss(self.scheduler, loss)

    def stop(self) -> None:
        self._stopping = True

    def close(self) -> None:
        self.executor.hooks.while_waiting = lambda: None
        self.executor.shutdown()

    def _turn(self, scheduler: Scheduler) -> None:
        busy = self.status.steps and scheduler.has_unfinished()
        self.take_messages(0.0 if busy else IDLE_SECONDS)
        self.executor.check_health()
        self.commands.advance()
        self.publisher.finished(scheduler.take_finished())
        self.publish()
        if self.status.steps and scheduler.has_unfinished():
            self._step(scheduler)

    def _step(self, scheduler: Scheduler) -> None:
        started = time.monotonic()
        plan = scheduler.schedule()
        if plan is None:
            time.sleep(BLOCKED_SECONDS)
            return
        result = self.executor.step(plan)
        outputs = scheduler.update(plan, result)
        self.losses.progressed()
        self.commands.note_activity()
        seconds = time.monotonic() - started
        self.publisher.outputs(outputs, scheduler, self.commands.num_held, seconds)

    # Messages

    def take_messages(self, seconds: float = 0.0, *, watch_wire: bool = True) -> None:
        """``watch_wire``: whether news of workers end the wait too; they must then be read."""
        wire = self.executor.fileno() if watch_wire else None
        for message in self._inbox.take(seconds, wire):
            self._take(message)
        if self._inbox.closed:
            self.stop()

    def _while_waiting(self) -> None:
        self.take_messages()
        if self._stopping:
            raise Stopped
        self.publish()

    def _take(self, message: ApiToCore) -> None:
        match message:
            case AddRequest():
                self._add(message)
            case AbortRequests(ids=ids):
                self._abort(ids)
            case OnCallCommand():
                self.commands.set_on_call(message)
            case ShutdownCommand():
                self.stop()
            case _:
                self.commands.queue.append(message)

    def _add(self, request: AddRequest) -> None:
        if self.scheduler is None:
            self._early.append(request)
        elif not self.commands.hold(request):
            self.scheduler.add(request)

    def _abort(self, ids: list[int]) -> None:
        gone = set(ids)
        held = self.commands.drop_held(gone)
        self._early = deque(request for request in self._early if request.id not in gone)
        ended = self.scheduler.abort(ids) if self.scheduler else []
        self.publisher.finished(ended + [Finished(id, "abort") for id in held])

    # Groups

    def _bring_up(self) -> None:
        """Form until it works. Raises RecoveryExhausted or the user's error."""
        while not self._stopping:
            try:
                self.group.bring_up()
                return
            except GroupLost as loss:
                self.note_loss(loss)

    def note_loss(self, loss: GroupLost) -> None:
        """Record a loss, end what is left of the group, wait as long as the budget says."""
        log.warning("Group %s is lost: %s", self.executor.group or "(forming)", loss.cause)
        self.publisher.lost(loss)
        self.status.reason, self.status.message = loss.reason, loss.cause
        try:
            pause = self.losses.note(loss, time.monotonic())
        finally:
            self.publish()
        self.executor.disband()
        until = time.monotonic() + pause
        while time.monotonic() < until and not self._stopping:
            self.take_messages(0.1, watch_wire=False)

    def _on_loss(self, scheduler: Scheduler, loss: GroupLost) -> None:
        """The group is gone. Asleep, it stays gone until it is woken; awake, it is formed anew."""
        if self.status.lifecycle == "Asleep":
            self.note_loss(loss)
            self.status.slept(3)
            self.status.reason, self.status.message = loss.reason, loss.cause
            self.publish()
            return
        resume = self.status.lifecycle
        self.status.enter("Recovering", loss.reason, loss.cause)
        if loss.external:
            scheduler.preempt_all()
        else:
            scheduler.record_loss()
        self.note_loss(loss)
        self._bring_up()
        scheduler.reset_cache(self.group.num_blocks)
        self.status.enter("Draining" if resume == "Draining" else "Awake")
        self.status.level, self.status.asleep = 0, ()
        if resume != "Draining":
            self.commands.release_held(scheduler)
        self.publisher.recovered()
        self.publish()

    def form_awake(self) -> None:
        """Bring a whole group up again after sleep level 3 or a failed wake."""
        self._bring_up()

    def check_canary(self) -> None:
        """Raise GroupLost(WakeFailed) when a woken group's tokens are not those it started with."""
        tokens = self._canary()
        if tokens != self._golden:
            raise GroupLost(
                "WakeFailed", f"After waking, the canary gave {tokens} and not {self._golden}."
            )

    def _canary(self) -> tuple[int, ...]:
        return run_canary(self.executor, self.config) if self.config.wake.canary else ()

    # Publishing

    def _on_progress(self, progress: LoadProgress) -> None:
        self.publisher.load = progress
        self.publish()

    def publish(self) -> None:
        """Also while a group is waited for: requests that come then are among the figures."""
        if self.scheduler is not None:
            self.publisher.stats(self.scheduler, self.commands.num_held, self.status)
        self.publisher.state(self.status, self.group.num_blocks, self.losses.total)

    def publish_failure(self, error: TorporError) -> None:
        """The last word of a core that ends with an error."""
        self.status.enter("Failed", type(error).__name__, error.cause)
        self.publisher.failed(self.status, error)
