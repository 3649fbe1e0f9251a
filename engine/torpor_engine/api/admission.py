"""Who may come in: a bound on unfinished choices, by what the engine is doing.

What is beyond the bound is refused at once, with the time after which it is likely to fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torpor_engine.api.errors import ApiError, invalid, overloaded, unavailable
from torpor_engine.metrics import Metrics
from torpor_protocol.config import EngineConfig
from torpor_protocol.requests import EngineState

MAX_RETRY_AFTER = 60
GUESSED_WAKE_SECONDS = 5.0
# The weight of the newest interval in the average time between two finished choices.
RATE_WEIGHT = 0.1
# A group that forms anew is not taken out of the Service for so long: a request that comes is held
# and answered, where a Service without endpoints would refuse it. Replaced pods take about 10 s.
HELD_WHILE_RECOVERING = 30.0
# A Service learns late that a pod is not ready: two failed probes, 2 s apart, then every node's
# rules. Requests that still come here are taken for so long.
TAKEN_OFF_CALL = 30.0
_AWAKE = frozenset({"Awake", "Recovering"})


class Admission:
    """Counts choices from the moment they may come in until they end. ``clock``: seconds.

    ``leaving``: not ready any more, but what comes is taken. ``draining``: what comes is refused.
    """

    def __init__(
        self,
        config: EngineConfig,
        state: Callable[[], EngineState],
        metrics: Metrics,
        clock: Callable[[], float],
        max_queued: int | None = None,
    ) -> None:
        self._wake = config.wake
        self._state = state
        self._metrics = metrics
        self._clock = clock
        queued = config.scheduler.max_queued if max_queued is None else max_queued
        self._running = config.scheduler.max_num_seqs
        self.capacity = self._running + queued
        self.unfinished = 0
        self.leaving = False
        self.draining = False
        self._last_end = 0.0
        self._interval = 0.0
        self._recovering_since: float | None = None
        self._off_call_until = -math.inf

    def enter(self, choices: int) -> None:
        """Raises ApiError: 429 or 503 when ``choices`` more cannot be taken now, 400 when never."""
        if choices > self.capacity:
            raise invalid(f"One request may have at most {self.capacity} answers in all.", "n")
        refusal = self._refusal(choices)
        if refusal is not None:
            self._metrics.rejected(refusal.code)
            raise refusal
        self.unfinished += choices

    def withdraw(self, choices: int) -> None:
        """They came in but were never submitted."""
        self.unfinished -= choices

    def leave(self) -> None:
        """One choice has ended. The time between two ends counts while others wait for a place:
        an idle engine's pauses say nothing about how fast it is."""
        now = self._clock()
        if self.unfinished > self._running and self._last_end:
            gap = now - self._last_end
            self._interval += RATE_WEIGHT * (gap - self._interval) if self._interval else gap
        self._last_end = now
        self.unfinished -= 1

    def called_off(self) -> None:
        """From now on requests shall come to another replica; those that are under way may come."""
        self._off_call_until = self._clock() + TAKEN_OFF_CALL

    def ready(self) -> bool:
        """Whether requests shall come here, and one that comes now is answered soon: on call, and
        awake, recovering not for long, or asleep with leave to wake."""
        state = self._state()
        recovering = self._recovers_for(state)
        if self.leaving or self.draining or state.lifecycle in ("Starting", "Failed"):
            return False
        if state.lifecycle in _AWAKE:
            return state.on_call and recovering < HELD_WHILE_RECOVERING
        return state.on_call and self._wake.on_request

    def sent_here(self) -> bool:
        """Whether requests may be under way to this server."""
        return self.ready() or self._just_off_call()

    def stays(self) -> bool:
        """Whether a client's next request may come here too: a Service moves no connection that
        is open, so the server has to close it."""
        return self._state().on_call and not (self.leaving or self.draining)

    def _recovers_for(self, state: EngineState) -> float:
        """Seconds since this was first seen."""
        if state.lifecycle != "Recovering":
            self._recovering_since = None
            return 0.0
        now = self._clock()
        if self._recovering_since is None:
            self._recovering_since = now
        return now - self._recovering_since

    def _may_wake(self, state: EngineState) -> bool:
        """Whether a request may come while the model sleeps, and so wake it."""
        return self._wake.on_request and (state.on_call or self._just_off_call())

    def _just_off_call(self) -> bool:
        return self._clock() < self._off_call_until

    def _refusal(self, choices: int) -> ApiError | None:
        state = self._state()
        if self.draining:
            return unavailable("shutting_down", "The server is shutting down.", 1, close=True)
        if state.lifecycle == "Failed":
            return unavailable("engine_failed", "The engine has failed.", 30, close=True)
        if state.lifecycle == "Starting":
            return unavailable("model_loading", "The model is being loaded.", 5)
        if state.lifecycle in _AWAKE:
            fits = self.unfinished + choices <= self.capacity
            return None if fits else overloaded(self._seconds_until_room(choices))
        if state.lifecycle != "Waking" and not self._may_wake(state):
            message = "This replica is asleep, and requests do not wake it."
            return unavailable("model_sleeping", message, self._wake_seconds(state), close=True)
        fits = self.unfinished + choices <= self._wake.max_held
        return None if fits else overloaded(self._wake_seconds(state))

    def _seconds_until_room(self, choices: int) -> int:
        too_many = self.unfinished + choices - self.capacity
        return _whole_seconds(too_many * self._interval)

    def _wake_seconds(self, state: EngineState) -> int:
        known = state.last_wake_seconds
        return _whole_seconds(known if known > 0 else GUESSED_WAKE_SECONDS)


def _whole_seconds(seconds: float) -> int:
    return min(max(math.ceil(seconds), 1), MAX_RETRY_AFTER)
