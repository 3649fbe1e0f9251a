"""What is remembered of a deployment from one look to the next, in this process only.

None of it is needed to be right: an operator that starts anew finds it out again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from torpor_operator.model import Manifest

_FIRST_PAUSE: Final = 1.0  # seconds, doubled by each refusal in a row
_LAST_PAUSE: Final = 30.0


@dataclass(frozen=True)
class Refusal:
    """The API server's words, and when the next attempt is worth it."""

    message: str
    until: float
    pause: float


@dataclass
class Memory:
    """Keys are "Kind/name", times are monotonic seconds. ``taken``: names that belong to somebody
    else, and when to look again. ``status``: the last one that was wanted, and what the API server
    made of it. ``secret``: as it was last seen or written; ``starts``: the containers that had
    started when it was looked at, None before that. ``silent``: by pod uid of an engine, since
    when it answers no more."""

    taken: dict[str, float] = field(default_factory=dict)
    refusals: dict[str, Refusal] = field(default_factory=dict)
    status: tuple[Manifest, Manifest] = field(default_factory=lambda: ({}, {}))
    secret: Manifest | None = None
    starts: frozenset[tuple[str, int, bool]] | None = None
    silent: dict[str, float] = field(default_factory=dict)

    def refuse(self, key: str, message: str, now: float) -> bool:
        """Whether that is news."""
        last = self.refusals.get(key)
        pause = _FIRST_PAUSE if last is None else min(_LAST_PAUSE, last.pause * 2)
        self.refusals[key] = Refusal(message, now + pause, pause)
        return last is None or last.message != message

    def waits(self, key: str, now: float) -> bool:
        refusal = self.refusals.get(key)
        return refusal is not None and now < refusal.until

    def keep_refusals(self, keys: Iterable[str]) -> None:
        """Forgets what is attempted no more."""
        kept = set(keys)
        self.refusals = {key: said for key, said in self.refusals.items() if key in kept}

    def next_attempt(self, now: float) -> float | None:
        """Seconds until a refused child is worth another attempt."""
        return min((max(0.0, said.until - now) for said in self.refusals.values()), default=None)
