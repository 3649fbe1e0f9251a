"""Sleep and wake as a state machine without side effects.

    Starting -> Awake -> Draining -> Sleeping -> Asleep -> Waking -> Awake
    Awake -> Recovering -> Awake; anything -> Failed

Levels: 1 drops the KV cache (an accelerator also moves weights to the host), 2 drops weights too,
3 ends the rank processes. Whatever the level, both tags count as asleep, and steps run again only
when none is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torpor_protocol.requests import Lifecycle, SleepCommand, SleepTag, WokenBy

ALL_TAGS: tuple[SleepTag, ...] = ("weights", "kv_cache")
PROCESS_LEVEL = 3


@dataclass
class Status:
    """Where the replica stands; ``level`` is 0 unless asleep. ``on_call``: requests are taken while
    it sleeps. ``woken_by``: why it is awake after a sleep."""

    lifecycle: Lifecycle = "Starting"
    level: int = 0
    asleep: tuple[SleepTag, ...] = ()
    reason: str = ""
    message: str = ""
    on_call: bool = True
    woken_by: WokenBy = ""

    @property
    def steps(self) -> bool:
        """Whether the model is run while there are requests."""
        return self.lifecycle in ("Awake", "Draining")

    def enter(self, lifecycle: Lifecycle, reason: str = "", message: str = "") -> None:
        self.lifecycle, self.reason, self.message = lifecycle, reason, message

    def slept(self, level: int) -> None:
        self.level, self.asleep, self.woken_by = level, ALL_TAGS, ""
        self.enter("Asleep")

    def woke(self, tags: tuple[SleepTag, ...]) -> None:
        """Tags are awake again; with none left asleep the replica is."""
        self.asleep = tuple(tag for tag in self.asleep if tag not in tags)
        if self.asleep:
            self.enter("Asleep")
        else:
            self.level = 0
            self.enter("Awake")


SleepStep = Literal["done", "drain", "sleep"]


def next_for_sleep(status: Status, command: SleepCommand, unfinished: bool) -> SleepStep:
    """What a sleep command needs now. Asleep at that level or a deeper one is done already."""
    if status.lifecycle == "Asleep" and len(status.asleep) == len(ALL_TAGS):
        return "done" if status.level >= command.level else "sleep"
    if command.mode == "wait" and unfinished and status.lifecycle != "Asleep":
        return "drain"
    return "sleep"


def tags_to_wake(status: Status, wanted: tuple[SleepTag, ...]) -> tuple[SleepTag, ...]:
    """The tags that a wake command has to bring back, in the order that wake needs: weights first.

    A replica without processes (level 3) can only come back whole."""
    if status.level == PROCESS_LEVEL or not wanted:
        return status.asleep
    return tuple(tag for tag in ALL_TAGS if tag in wanted and tag in status.asleep)
