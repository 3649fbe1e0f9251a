"""Calls of engines that run beside the work queue, at most one at a time per replica.

How a call went is read from the engine's state, not from its answer: the operator may have been
started anew in between. What is kept here is only what the state cannot tell: that a call is under
way, and that one failed a moment ago.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from torpor_operator.model import EngineCall
from torpor_protocol.errors import TorporError

_FIRST_PAUSE: Final = 2.0  # seconds, doubled by each failure in a row
_LAST_PAUSE: Final = 60.0

logger = logging.getLogger(__name__)


class Caller(Protocol):
    async def carry_out(self, call: EngineCall, token: str) -> None: ...


class Slot(NamedTuple):
    """One call at a time for each. ``on_call`` has a slot of its own: it takes no time, and a
    replica must get off call while another's request is still draining."""

    deployment: str  # uid
    replica: int
    kind: str


@dataclass(frozen=True)
class _Failure:
    call: EngineCall
    until: float
    pause: float


class EngineCalls:
    """``clock`` is monotonic."""

    def __init__(self, caller: Caller, *, clock: Callable[[], float]) -> None:
        self._caller = caller
        self._clock = clock
        self._tasks: dict[Slot, tuple[str, asyncio.Task[None]]] = {}
        self._failures: dict[Slot, _Failure] = {}

    def start(
        self, deployment: str, call: EngineCall, token: str, done: Callable[[], None]
    ) -> bool:
        """False when one is under way there, or the same failed so recently that it has to wait. A
        call to a pod that has been replaced is given up for one to its successor. ``done`` is
        called at the end, however it ended."""
        slot = Slot(deployment, call.replica, "on_call" if call.verb == "on_call" else "power")
        ip, running = self._tasks.get(slot, ("", None))
        if running is not None and ip == call.ip:
            return False
        failure = self._failures.get(slot)
        if failure is not None and failure.call == call and self._clock() < failure.until:
            return False
        if running is not None:
            running.cancel()
        task = asyncio.create_task(self._run(slot, call, token), name=f"{call.verb} {slot}")
        self._tasks[slot] = (call.ip, task)
        task.add_done_callback(lambda ended: self._ended(slot, ended, done))
        return True

    def forget(self, deployment: str) -> None:
        """The deployment is no more."""
        for slot in [slot for slot in self._tasks if slot.deployment == deployment]:
            self._tasks[slot][1].cancel()
        for slot in [slot for slot in self._failures if slot.deployment == deployment]:
            del self._failures[slot]

    async def stop(self) -> None:
        tasks = [task for _, task in self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, slot: Slot, call: EngineCall, token: str) -> None:
        try:
            await self._caller.carry_out(call, token)
        except TorporError as error:
            last = self._failures.get(slot)
            pause = _FIRST_PAUSE if last is None else min(_LAST_PAUSE, last.pause * 2)
            self._failures[slot] = _Failure(call, self._clock() + pause, pause)
            logger.warning("%s of replica %d failed: %s", call.verb, call.replica, error)
        else:
            self._failures.pop(slot, None)

    def _ended(self, slot: Slot, task: asyncio.Task[None], done: Callable[[], None]) -> None:
        if self._tasks.get(slot, ("", None))[1] is task:
            del self._tasks[slot]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s broke: %s", task.get_name(), error, exc_info=error)
        done()
