"""Where the core's outputs go: the table of running choices.

Every choice in the table is known to the core; taking one out tells the core, unless the core
said so itself. Outputs of a choice that is not in the table are late and are dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from torpor_engine.api.admission import Admission
from torpor_engine.api.choice import Choice
from torpor_engine.api.core_link import CoreLink
from torpor_engine.api.errors import ApiError, internal_error, shorten, unavailable
from torpor_engine.api.generation import Generation
from torpor_engine.metrics import Metrics
from torpor_protocol.arrays import unpack_i32, unpack_i64
from torpor_protocol.errors import EngineDead
from torpor_protocol.requests import Finished, Started, StepOutputs

log = logging.getLogger(__name__)

MAX_REASON_CHARS = 300


class OutputRouter:
    """``clock``: the event loop's time, in seconds."""

    def __init__(
        self, core: CoreLink, admission: Admission, metrics: Metrics, clock: Callable[[], float]
    ) -> None:
        self._core = core
        self._admission = admission
        self._metrics = metrics
        self._clock = clock
        self._live: dict[int, Choice] = {}
        core.on_outputs = self.handle

    @property
    def generations(self) -> set[Generation]:
        return {choice.owner for choice in self._live.values()}

    def start(self, generation: Generation) -> None:
        """Hand every choice to the core; a core that is gone fails the generation."""
        generation.submitted = self._clock()
        for choice in generation.choices:
            self._live[choice.id] = choice
        try:
            for request in generation.requests:
                self._core.submit(request)
        except EngineDead:
            self.fail(generation, unavailable("engine_dead", "The engine is not running.", 10))
        generation.requests.clear()

    def drop(self, generation: Generation) -> None:
        """End what is left of it; nothing happens to choices that have ended."""
        ids = [choice.id for choice in generation.choices if choice.id in self._live]
        if not ids:
            return
        reason = "abort" if generation.error is None else "error"
        for choice_id in ids:
            self._end(self._live[choice_id], reason)
        try:
            self._core.abort(ids)
        except EngineDead:
            log.debug("%d requests were dropped after the core", len(ids))

    def fail(self, generation: Generation, error: ApiError) -> None:
        """End the request with an error, unless it has ended."""
        if not generation.done:
            generation.error = error
            generation.news.set()
        self.drop(generation)

    def handle(self, outputs: StepOutputs) -> None:
        """One step's news; an error with one request's text fails that request only."""
        now = self._clock()
        touched: set[Generation] = set()
        for started in outputs.started:
            self._started(started, now - outputs.step_seconds)
        for entry in outputs.logprobs:
            choice = self._live.get(entry.row)
            if choice is not None:
                choice.expect(entry)
        if outputs.ids:
            self._tokens(outputs, now, touched)
        for end in outputs.finished:
            self._finished(end, touched)
        for generation in touched:
            generation.notify()

    def _started(self, started: Started, step_began: float) -> None:
        choice = self._live.get(started.id)
        if choice is not None:
            choice.cached_tokens = started.cached_tokens
            self._metrics.queue_time.observe(max(step_began - choice.owner.submitted, 0.0))

    def _tokens(self, outputs: StepOutputs, now: float, touched: set[Generation]) -> None:
        live = self._live
        gaps: dict[float, int] = {}
        tokens = unpack_i32(outputs.tokens).tolist()
        for request_id, token in zip(unpack_i64(outputs.ids).tolist(), tokens, strict=True):
            choice = live.get(request_id)
            if choice is None:
                continue
            before = choice.last_time
            gaps[before] = gaps.get(before, 0) + 1
            choice.last_time = now
            try:
                stopped = choice.accept(token)
            except Exception:
                log.exception("request %d failed on token %d", request_id, token)
                self.fail(choice.owner, internal_error())
                continue
            if not before:
                self._first_token(choice.owner, now)
            if stopped:
                self._end(choice, "stop")
                self._core.abort([request_id])
            touched.add(choice.owner)
        self._metrics.step(len(tokens), gaps, now)

    def _first_token(self, generation: Generation, now: float) -> None:
        generation.has_tokens = True
        self._metrics.time_to_first_token.observe(now - generation.submitted)

    def _finished(self, end: Finished, touched: set[Generation]) -> None:
        choice = self._live.get(end.id)
        if choice is None:
            return
        owner = choice.owner
        if end.reason == "abort":
            message = "The server gave this request up because it goes to sleep or stops."
            self._fail_by_core(choice, unavailable("request_aborted", message, 1))
        elif end.reason == "error":
            self._fail_by_core(choice, internal_error(shorten(end.message, MAX_REASON_CHARS)))
        else:
            self._end(choice, choice.finish(end, owner.job.rules.include_stop))
        touched.add(owner)

    def _fail_by_core(self, choice: Choice, error: ApiError) -> None:
        self._end(choice, "error" if error.status == 500 else "abort")
        choice.owner.error = choice.owner.error or error
        self.drop(choice.owner)

    def _end(self, choice: Choice, reason: str) -> None:
        del self._live[choice.id]
        choice.owner.unfinished -= 1
        self._admission.leave()
        self._metrics.finished(reason, self._clock() - choice.owner.submitted)
