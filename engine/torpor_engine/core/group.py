"""The group's life as the core sees it: bring-up in the order of the design, budget of losses.

A group is never repaired. Whatever went wrong, the answer is ``bring_up``: new group id, new ranks,
weights loaded again, the KV cache as large as before.
"""

from __future__ import annotations

import logging
import time
from collections import deque

from torpor_engine.core.blocks import plan_blocks
from torpor_engine.executor import Executor
from torpor_protocol.config import EngineConfig, RecoveryConfig
from torpor_protocol.errors import (
    ConfigError,
    GroupLost,
    MemoryBudgetError,
    ModelError,
    RankFailed,
    RecoveryExhausted,
    TorporError,
)

log = logging.getLogger(__name__)

# A step may take this many times as long as the profiled largest batch before its ranks count as
# hung: neighbours on the machine slow it down, but not without bound.
PROFILE_MARGIN = 10.0
USER_ERRORS: dict[str, type[TorporError]] = {
    error.__name__: error for error in (ConfigError, MemoryBudgetError, ModelError)
}


def user_error(failure: RankFailed) -> TorporError | None:
    """The error of a rank as the user's own mistake, which no new group would cure."""
    kind = USER_ERRORS.get(failure.error_class)
    return kind(failure.cause, failure.fix) if kind else None


class Group:
    """``num_blocks`` is found once, by profiling; later formations reuse it."""

    def __init__(self, config: EngineConfig, executor: Executor) -> None:
        self.config = config
        self.executor = executor
        self.num_blocks = 0

    def bring_up(self) -> None:
        """Form, load, allocate, warm up. Raises GroupLost, or the user's error."""
        executor = self.executor
        started = time.monotonic()
        try:
            executor.form()
            executor.init_device()
            executor.load_model()
            if not self.num_blocks:
                specs = executor.get_kv_cache_specs()
                self.num_blocks = plan_blocks(
                    self.config, specs, executor.determine_available_memory()
                )
                slowest = executor.profile_seconds() * PROFILE_MARGIN
                executor.step_timeout = max(executor.step_timeout, slowest)
            executor.initialize_cache(self.num_blocks)
            executor.compile_or_warm_up_model()
            executor.reset()
        except RankFailed as failure:
            error = user_error(failure)
            if error is None:
                raise
            raise error from failure
        log.info("Group %s is up after %.2f s.", executor.group, time.monotonic() - started)


class LossBudget:
    """Losses in a sliding window, and the pause before the next formation."""

    def __init__(self, recovery: RecoveryConfig) -> None:
        self._recovery = recovery
        self._times: deque[float] = deque()
        self._in_a_row = 0
        self.total = 0

    def note(self, loss: GroupLost, now: float) -> float:
        """Count a loss; gives the seconds to wait before forming anew.

        Raises RecoveryExhausted when the window has seen too many."""
        self.total += 1
        self._times.append(now)
        while self._times and now - self._times[0] > self._recovery.window_seconds:
            self._times.popleft()
        if len(self._times) > self._recovery.max_restarts:
            raise RecoveryExhausted(
                f"The group was lost {len(self._times)} times within "
                f"{self._recovery.window_seconds:.0f} s, last because: {loss.cause}",
                "Look at the log of the ranks; spec.recovery sets how many losses are borne.",
            )
        pause = self._recovery.backoff_seconds * float(2**self._in_a_row - 1)
        self._in_a_row = min(self._in_a_row + 1, 6)
        return pause

    def progressed(self) -> None:
        """Tokens flow: the next loss is the first in a row again."""
        self._in_a_row = 0
