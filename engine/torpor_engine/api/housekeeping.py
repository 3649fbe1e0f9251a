"""What time brings: comments on quiet streams, clients that stopped reading, wakes that take too
long, an engine that has failed.

One task looks at everything once a second; no request has a timer of its own.
"""

from __future__ import annotations

import asyncio
import logging

from torpor_engine.api.context import ServerContext
from torpor_engine.api.errors import unavailable
from torpor_engine.api.sender import StreamSender
from torpor_protocol.requests import EngineState

log = logging.getLogger(__name__)

_SERVING = frozenset({"Awake", "Recovering"})
_RETRY_SECONDS = 30


class Housekeeper:
    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._not_serving_since: float | None = None

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self._context.settings.tick_seconds)
            self.tick()

    def tick(self) -> None:
        now = self._context.clock()
        state = self._context.core.state()
        self._context.metrics.watch_sleep(state)
        for sender in list(self._context.streams):
            self._look_after(sender, now)
        self._end_waits(state, now)

    def _look_after(self, sender: StreamSender, now: float) -> None:
        settings = self._context.settings
        if not sender.sending_since:
            if now - sender.last_sent >= settings.keep_alive_seconds:
                sender.keep_alive()
            return
        unsent = sum(choice.unsent_chars for choice in sender.generation.choices)
        stalled = now - sender.sending_since >= settings.stall_seconds
        if stalled or unsent > settings.max_unsent_chars:
            log.info("a client does not read its stream: %s is given up", sender.generation.job.id)
            self._context.router.drop(sender.generation)
            sender.cut()

    def _end_waits(self, state: EngineState, now: float) -> None:
        router = self._context.router
        if state.lifecycle == "Failed":
            error = unavailable("engine_failed", "The engine has failed.", _RETRY_SECONDS)
            for generation in router.generations:
                router.fail(generation, error)
        if state.lifecycle in _SERVING:
            self._not_serving_since = None
            return
        since = self._not_serving_since = self._not_serving_since or now
        limit = self._context.config.wake.timeout_seconds
        error = unavailable(
            "model_sleeping", f"The model did not wake within {limit:g} seconds.", _RETRY_SECONDS
        )
        for generation in router.generations:
            waited = now - max(since, generation.submitted)
            if not generation.has_tokens and waited >= limit:
                router.fail(generation, error)
