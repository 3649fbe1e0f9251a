"""The work queue: every deployment is a key, and a key is worked on by one task at a time.

``Schedule`` knows only when which key is due and takes every time as an argument, so that its rules
are tested without waiting. ``WorkQueue`` is the loop around it. A key that was asked for ten times
is worked on once; one that failed comes back later and later; one that nobody asks for comes back
at the resync, because an event can be lost.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from torpor_operator.schedule import Schedule
from torpor_protocol.errors import TorporError

_CONCURRENT: Final = 8
_JITTER: Final = 0.2

logger = logging.getLogger(__name__)


class Key(NamedTuple):
    """Names one deployment."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Outcome:
    """What a finished piece of work says: look again after so many seconds, or never."""

    requeue_after: float | None = None
    gone: bool = False


Work = Callable[[Key], Awaitable[Outcome]]


class WorkQueue:
    """Calls ``work(key)`` for each due key until ``run`` is cancelled.

    ``resync``: seconds until a key is due again that nobody asked for; scattered by a fifth, so
    that a hundred deployments do not come back in one second."""

    def __init__(
        self, work: Work, *, clock: Callable[[], float], resync: float, limit: int = _CONCURRENT
    ) -> None:
        self._work = work
        self._clock = clock
        self._resync = resync
        self._limit = limit
        self._schedule: Schedule[Key] = Schedule()
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()

    def add(self, key: Key, delay: float = 0.0) -> None:
        self._schedule.add(key, self._clock() + delay)
        self._changed.set()

    def depth(self) -> int:
        """Keys that are due or worked on."""
        return self._schedule.depth(self._clock())

    def oldest(self) -> float:
        """Seconds for which the oldest due key has had no finished piece of work."""
        return self._schedule.oldest(self._clock())

    async def run(self) -> None:
        try:
            while True:
                self._changed.clear()
                self._start_due()
                await self._wait()
        finally:
            await self._stop()

    def _start_due(self) -> None:
        while len(self._tasks) < self._limit:
            key = self._schedule.take(self._clock())
            if key is None:
                return
            task = asyncio.create_task(self._one(key), name=f"reconcile {key}")
            self._tasks.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._changed.set()

    async def _wait(self) -> None:
        until = self._schedule.next_time() if len(self._tasks) < self._limit else None
        pause = None if until is None else max(0.0, until - self._clock())
        try:
            async with asyncio.timeout(pause):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _one(self, key: Key) -> None:
        try:
            outcome = await self._work(key)
        except Exception as error:  # whatever it is, the key must come back
            delay = self._schedule.fail(key, self._clock())
            # Our own errors are a sentence; of any other the place matters.
            trace = None if isinstance(error, TorporError) else error
            logger.warning("%s failed, again in %.1f s: %s", key, delay, error, exc_info=trace)
            return
        except BaseException:
            self._schedule.fail(key, self._clock())
            raise
        if outcome.gone:
            self._schedule.forget(key, self._clock())
        else:
            self._schedule.finish(key, self._clock(), self._delay(outcome.requeue_after))

    def _delay(self, wanted: float | None) -> float:
        resync = self._resync * random.uniform(1 - _JITTER, 1 + _JITTER)
        return resync if wanted is None else min(wanted, resync)

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
