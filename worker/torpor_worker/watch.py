"""Tells when a process cannot run although it exists: stopped, or stuck in the kernel.

Pure: the supervisor hands in what ``/proc`` said. A stopped rank never fails by itself, and its
group waits for it in a collective, so this is what finds it in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from torpor_worker.processes import Sighting

# Seconds in one of these states before the process counts as stalled.
PATIENCE = {"T": 1.0, "t": 1.0, "D": 10.0}
NEVER = float("inf")


@dataclass
class _Spell:
    """How long a process has not been seen to do anything."""

    sighting: Sighting
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

    def look(self, sightings: dict[int, Sighting], now: float) -> list[Stall]:
        """``sightings`` by pid. Each stall is told once, until it ends."""
        stalls = []
        self._spells = {pid: spell for pid, spell in self._spells.items() if pid in sightings}
        for pid, sighting in sightings.items():
            spell = self._spells.get(pid)
            if spell is None or spell.sighting != sighting:
                spell = self._spells[pid] = _Spell(sighting, now)
            seconds = now - spell.since
            if not spell.told and seconds > PATIENCE.get(sighting.state, NEVER):
                spell.told = True
                stalls.append(Stall(pid, sighting.state, seconds))
        return stalls
