"""Sleep and wake of one rank: which tags are released, and what must happen before it may run.

Level 1 keeps the weights' contents (an accelerator copies them to the host, a CPU leaves them),
level 2 drops them; both drop the KV cache. Level 3, the end of the process, is not this module's.
Every call may be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torpor_protocol.errors import ConfigError, TorporError
from torpor_worker.memory import KV_CACHE, WEIGHTS, MemoryPool
from torpor_worker.memory.pages import trim_heap

KEEP_WEIGHTS = 1
DROP_WEIGHTS = 2


class WorkerAsleep(TorporError):
    """Work came for a rank that has no weights or no cache."""


class Sleeper:
    """``reload``: fill the weights again from their source, checked; raises ModelError.
    ``clear_cache``: make the restored cache fit for use."""

    def __init__(
        self, pool: MemoryPool, reload: Callable[[], None], clear_cache: Callable[[], None]
    ) -> None:
        self._pool = pool
        self._reload = reload
        self._clear_cache = clear_cache
        self._asleep: set[str] = set()
        self._weights_lost = False

    @property
    def asleep(self) -> frozenset[str]:
        """Tags that must be woken before a step may run."""
        return frozenset(self._asleep)

    def sleep(self, level: int) -> int:
        """Release what the level releases. Returns the bytes given back. Raises ConfigError."""
        if level not in (KEEP_WEIGHTS, DROP_WEIGHTS):
            raise ConfigError(
                f"A rank cannot sleep at level {level}.", "Choose level 1 or 2; 3 ends the rank."
            )
        freed = self._pool.release(KV_CACHE)
        keep = level == KEEP_WEIGHTS
        if not self._weights_lost:
            freed += self._pool.release(WEIGHTS, keep=keep)
            self._weights_lost = not keep
        self._asleep = {WEIGHTS, KV_CACHE}
        trim_heap()
        return freed

    def wake_up(self, tags: Sequence[str]) -> None:
        """Restore these tags, or all when there are none. Raises ConfigError for another tag,
        MemoryBudgetError when memory is gone, ModelError when the weights' source is not what it
        was; a tag whose restoring failed is still asleep."""
        unknown = sorted(set(tags) - {WEIGHTS, KV_CACHE})
        if unknown:
            raise ConfigError(f"There is no tag {unknown[0]!r}.", f"Tags: {WEIGHTS}, {KV_CACHE}.")
        wanted = self._asleep & set(tags or (WEIGHTS, KV_CACHE))
        if WEIGHTS in wanted:
            self._pool.restore(WEIGHTS)
            if self._weights_lost:
                self._reload()
                self._weights_lost = False
            self._asleep.discard(WEIGHTS)
        if KV_CACHE in wanted:
            self._pool.restore(KV_CACHE)
            self._clear_cache()
            self._asleep.discard(KV_CACHE)

    def check_awake(self) -> None:
        """Raises WorkerAsleep."""
        if self._asleep:
            raise WorkerAsleep(
                f"This rank sleeps: {' and '.join(sorted(self._asleep))} are released.",
                "Wake it before sending a step.",
            )
