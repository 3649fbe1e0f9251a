"""What a supervisor does about its group: pure, from events to actions.

At most one group lives in a pod. Nothing of the next one starts before the last process of the
one before is reaped, so two formations can never share a device. The supervisor (`supervisor`)
feeds in what happened and carries out the actions in order.
"""

from __future__ import annotations

from dataclasses import dataclass

from torpor_protocol.config import RankAssignment
from torpor_protocol.rpc import (
    NO_GROUP,
    Call,
    Disband,
    Disbanded,
    EngineMessage,
    Form,
    Probe,
    RankExited,
    RankStalled,
    Shutdown,
    WorkerMessage,
)
from torpor_worker.watch import Stall

# Seconds. A fork takes milliseconds and a SIGKILL as long as freeing memory does.
PRELOAD_TIMEOUT = 300.0
FORK_TIMEOUT = 30.0
KILL_TIMEOUT = 5.0
NOT_FORKED = 0
REFUSED = 2


@dataclass(frozen=True)
class Send:
    group: bytes
    message: WorkerMessage


@dataclass(frozen=True)
class Start:
    """Fork the ranks of this Form."""

    form: Form


@dataclass(frozen=True)
class KillRanks:
    """SIGKILL every rank; their ends are reported one by one."""


@dataclass(frozen=True)
class ReplaceForkServer:
    """Kill the fork server; the kernel kills its ranks with it. Then start another."""

    why: str


@dataclass(frozen=True)
class Leave:
    """Kill everything and exit."""


Action = Send | Start | KillRanks | ReplaceForkServer | Leave


@dataclass
class _Rank:
    """``since``: when it was asked for. ``pid`` 0 until the fork server has told it."""

    since: float
    pid: int = NOT_FORKED


class Formation:
    """``group`` is the one whose ranks live here, or lived until they failed; NO_GROUP = idle."""

    def __init__(self, devices: int, now: float) -> None:
        self.group = NO_GROUP
        self._devices = devices
        self._ranks: dict[int, _Rank] = {}
        self._next: tuple[bytes, Form] | None = None
        self._killing_since: float | None = None
        self._ready = False
        self._fork_server_since = now

    def pids(self) -> dict[int, int]:
        """Process ids by rank, of the ranks that have one."""
        return {rank: entry.pid for rank, entry in sorted(self._ranks.items()) if entry.pid}

    # What the engine says

    def on_message(self, group: bytes, message: EngineMessage, now: float) -> list[Action]:
        match message:
            case Form():
                return self._on_form(group, message, now)
            case Disband():
                return self._on_disband(group, now)
            case Shutdown():
                return [Leave()]
            case Call() | Probe():
                return []

    def _on_form(self, group: bytes, form: Form, now: float) -> list[Action]:
        if group == self.group or (self._next is not None and group == self._next[0]):
            return []
        self._next = (group, form)
        return self._kill(now) or self._go_on(now)

    def _on_disband(self, group: bytes, now: float) -> list[Action]:
        """Of a group that is not here all ranks are dead: say so, touch nothing."""
        if self._next is not None and group == self._next[0]:
            self._next = None
        if group != self.group or group == NO_GROUP:
            return [Send(group, Disbanded())]
        return self._kill(now) or self._go_on(now, disbanded=True)

    def _kill(self, now: float) -> list[Action]:
        if not self._ranks:
            return []
        if self._killing_since is None:
            self._killing_since = now
        return [KillRanks()]

    # What the fork server and the kernel say

    def on_ready(self, now: float) -> list[Action]:
        self._ready = True
        return [] if self._ranks else self._go_on(now)

    def on_forked(self, rank: int, pid: int) -> list[Action]:
        if rank in self._ranks:
            self._ranks[rank].pid = pid
        return []

    def on_exited(self, rank: int, pid: int, status: int, tail: str, now: float) -> list[Action]:
        entry = self._ranks.get(rank)
        if entry is None or entry.pid not in (pid, NOT_FORKED):
            return []
        del self._ranks[rank]
        if self._killing_since is None:
            return [Send(self.group, RankExited(rank, pid, status, tail))]
        return [] if self._ranks else self._go_on(now, disbanded=True)

    def on_reaped(self, pid: int, status: int, tail: str, now: float) -> list[Action]:
        """A process that the supervisor inherited is dead: a rank, if its fork server died."""
        for rank, known in self.pids().items():
            if known == pid:
                return self.on_exited(rank, pid, status, tail, now)
        return []

    def on_fork_server_lost(self, status: int, tail: str, now: float) -> list[Action]:
        """Ranks that have a pid are told one by one, when they are reaped."""
        actions: list[Action] = []
        if self._next is not None and not self._ready:
            # It died while importing and may do so for ever; the engine counts the attempts.
            (group, form), self._next = self._next, None
            for assignment in form.assignments:
                message = RankExited(assignment.rank, NOT_FORKED, status, tail)
                actions.append(Send(group, message))
        self._ready = False
        self._fork_server_since = now
        for rank in [rank for rank, entry in self._ranks.items() if entry.pid == NOT_FORKED]:
            actions += self.on_exited(rank, NOT_FORKED, status, tail, now)
        return actions

    # What time says

    def on_tick(self, now: float) -> list[Action]:
        why = self._overdue(now)
        if not why:
            return []
        # Once: the next complaint is due only after the new fork server had its time.
        self._fork_server_since = now
        self._ready = False
        return [ReplaceForkServer(why)]

    def _overdue(self, now: float) -> str:
        if not self._ready:
            late = now - self._fork_server_since > PRELOAD_TIMEOUT
            return f"it was not ready after {PRELOAD_TIMEOUT:.0f} s" if late else ""
        if self._killing_since is not None and now - self._killing_since > KILL_TIMEOUT:
            return f"it had not reaped its ranks {KILL_TIMEOUT:.0f} s after their SIGKILL"
        if any(not e.pid and now - e.since > FORK_TIMEOUT for e in self._ranks.values()):
            return f"it did not fork a rank within {FORK_TIMEOUT:.0f} s"
        return ""

    def on_stalls(self, stalls: list[Stall], fork_server: int) -> list[Action]:
        ranks = {pid: rank for rank, pid in self.pids().items()}
        actions: list[Action] = []
        for stall in stalls:
            if stall.pid == fork_server:
                actions.append(ReplaceForkServer(f"it has been in state {stall.state}"))
            elif stall.pid in ranks:
                rank = ranks[stall.pid]
                message = RankStalled(rank, stall.pid, stall.state, round(stall.seconds, 2))
                actions.append(Send(self.group, message))
        return actions

    # No rank is left

    def _go_on(self, now: float, disbanded: bool = False) -> list[Action]:
        """End the old group, if it was asked for or is in the way, and start the next."""
        actions: list[Action] = []
        if self.group != NO_GROUP and (disbanded or self._next is not None):
            actions.append(Send(self.group, Disbanded()))
            self.group = NO_GROUP
        self._killing_since = None
        if self._next is not None and self._ready:
            (self.group, form), self._next = self._next, None
            actions += self._start(form, now)
        return actions

    def _start(self, form: Form, now: float) -> list[Action]:
        objection = self._objection(form)
        if objection:
            group, self.group = self.group, NO_GROUP
            return [Send(group, _refusal(assignment, objection)) for assignment in form.assignments]
        self._ranks = {assignment.rank: _Rank(now) for assignment in form.assignments}
        return [Start(form)]

    def _objection(self, form: Form) -> str:
        """Why this pod cannot hold these ranks, or nothing."""
        wanted = len(form.assignments)
        if wanted > self._devices:
            return f"This pod holds {self._devices} ranks; the engine asked for {wanted}."
        if len(form.keys) != wanted:
            return f"The engine sent {len(form.keys)} keys for {wanted} ranks."
        if len({assignment.rank for assignment in form.assignments}) != wanted:
            return "The engine asked for the same rank twice."
        if any(assignment.group != self.group.hex() for assignment in form.assignments):
            return "The engine assigned a rank to another group than the one it forms."
        return ""


def _refusal(assignment: RankAssignment, objection: str) -> RankExited:
    return RankExited(assignment.rank, NOT_FORKED, REFUSED, objection)
