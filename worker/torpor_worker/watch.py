"""Tells when a process cannot run although it exists: stopped, or stuck in the kernel.

Pure: the supervisor hands in what ``/proc`` said. A stopped rank never fails by itself, and its
group waits for it in a collective, so this is what finds it in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

# Seconds in one of these states before the process counts as stalled.
PATIENCE = {"T": 1.0, "t": 1.0, "D": 10.0}


@dataclass
class _Spell:
    state: str
    since: float
    told: bool = False


@dataclass(frozen=True)
class Stall:
    pid: int
    state: str
    seconds: float


class StallWatch:
    def __init__(self) -> None:
        self._spells: dict[int, _Spell] = {}

    def look(self, states: dict[int, str], now: float) -> list[Stall]:
        """``states``: state letter by pid. Each stall is told once, until it ends."""
        stalls = []
        self._spells = {pid: spell for pid, spell in self._spells.items() if pid in states}
        for pid, state in states.items():
            spell = self._spells.get(pid)
            if spell is None or spell.state != state:
                spell = self._spells[pid] = _Spell(state, now)
            seconds = now - spell.since
            if not spell.told and seconds > PATIENCE.get(state, float("inf")):
                spell.told = True
                stalls.append(Stall(pid, state, seconds))
        return stalls
