"""When which key is due: the rules of the work queue, without a clock and without tasks."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

# Seconds. A burst of events about one deployment (eight pods that start) is one piece of work.
SPACING: Final = 0.2
FIRST_BACKOFF: Final = 0.5
LAST_BACKOFF: Final = 30.0

K = TypeVar("K", bound=Hashable)


class Schedule(Generic[K]):
    """Every method takes ``now`` or ``at`` in seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._due: dict[K, float] = {}
        self._running: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._rested: dict[K, float] = {}

    def add(self, key: K, at: float) -> None:
        """Makes the key due at that time, or earlier if it already is; while it is being worked
        on, it becomes due again afterwards."""
        at = max(at, self._rested.get(key, at))
        self._due[key] = min(at, self._due.get(key, at))

    def take(self, now: float) -> K | None:
        """The key that has been due the longest, marked as worked on."""
        ready = [(at, key) for key, at in self._due.items() if at <= now and self._free(key)]
        if not ready:
            return None
        since, key = min(ready, key=lambda entry: entry[0])
        del self._due[key]
        self._running[key] = since
        return key

    def finish(self, key: K, now: float, again: float) -> None:
        """It went well, and is due again after so many seconds."""
        self._failures.pop(key, None)
        self._rest(key, now)
        self.add(key, now + again)

    def fail(self, key: K, now: float) -> float:
        """It did not, and comes back after a time that doubles. An event brings it back earlier:
        what failed may have been mended. Returns the seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = min(LAST_BACKOFF, FIRST_BACKOFF * 2.0 ** min(failures, 16))
        self._rest(key, now)
        self.add(key, now + delay)
        return delay

    def forget(self, key: K, now: float) -> None:
        """It is no more. What was asked while it was worked on is still done: another may have
        come into being under its name."""
        self._failures.pop(key, None)
        self._running.pop(key, None)
        self._rested.pop(key, None)

    def next_time(self) -> float | None:
        """When the next key is due that nobody works on."""
        return min((at for key, at in self._due.items() if self._free(key)), default=None)

    def depth(self, now: float) -> int:
        return len(self._running) + sum(
            at <= now and self._free(key) for key, at in self._due.items()
        )

    def oldest(self, now: float) -> float:
        waiting = [at for at in self._due.values() if at <= now]
        since = min([*waiting, *self._running.values()], default=now)
        return now - since

    def _free(self, key: K) -> bool:
        return key not in self._running

    def _rest(self, key: K, now: float) -> None:
        """Also moves what was asked for meanwhile."""
        self._running.pop(key, None)
        self._rested[key] = now + SPACING
        if key in self._due:
            self._due[key] = max(self._due[key], now + SPACING)
