"""Who is there: supervisors and ranks as their messages tell, and what has been lost."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass

from torpor_engine.executor.exits import how_it_ended
from torpor_protocol import rpc
from torpor_protocol.config import MemoryReport
from torpor_protocol.errors import GroupLost
from torpor_protocol.requests import LoadProgress, RankState

# States of /proc/<pid>/stat of a process that somebody has stopped.
STOPPED = ("T", "t")


@dataclass
class Seen:
    """A supervisor that said hello."""

    hello: rpc.Hello
    last: float

    def same_process(self, hello: rpc.Hello) -> bool:
        mine = self.hello
        return (mine.pod_uid, mine.pid, mine.incarnation) == (
            hello.pod_uid,
            hello.pid,
            hello.incarnation,
        )


class Roster:
    """``begin`` and ``end`` bracket the life of a group; supervisors outlive groups."""

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._supervisors: dict[bytes, Seen] = {}
        self._holders: frozenset[bytes] = frozenset()
        self.end()

    def begin(self, group: bytes, holders: Iterable[bytes] = ()) -> None:
        """``holders``: the supervisors that are to have ranks of the group."""
        self.end()
        self._group = group
        self._holders = frozenset(holders)
        self._began = time.monotonic()

    def end(self) -> None:
        self._group = rpc.NO_GROUP
        self._began = 0.0
        self._pids: dict[int, int] = {}
        self._resident: dict[int, int] = {}
        self._states: dict[int, str] = {}
        self._progress: dict[int, rpc.Progress] = {}
        self._loss: GroupLost | None = None
        self._holders = frozenset()

    @property
    def devices(self) -> int:
        """Ranks that the present supervisors can hold."""
        return sum(seen.hello.devices for seen in self._supervisors.values())

    @property
    def complete(self) -> bool:
        return len(self._pids) == self._world_size

    def hellos(self) -> dict[bytes, rpc.Hello]:
        return {peer: seen.hello for peer, seen in self._supervisors.items()}

    def forget(self, supervisor: bytes) -> None:
        self._supervisors.pop(supervisor, None)
        self._holders -= {supervisor}

    def expel(self, supervisor: bytes, cause: str) -> None:
        """Forget one that is not what it was; the group is lost if it held ranks of it."""
        if supervisor in self._holders:
            self._lose("PodLost", cause, external=True)
        self.forget(supervisor)

    def forget_silent(self, limit: float) -> None:
        """Forget the supervisors that have said nothing for ``limit`` seconds."""
        now = time.monotonic()
        for peer in [peer for peer, seen in self._supervisors.items() if now - seen.last > limit]:
            self.forget(peer)

    def holds_ranks(self, supervisor: bytes, limit: float) -> bool:
        """Whether a supervisor of the group still runs, and was heard within ``limit`` seconds."""
        seen = self._supervisors.get(supervisor)
        alive = seen is not None and time.monotonic() - seen.last <= limit
        return alive and supervisor in self._holders

    def take(self, peer: bytes, message: rpc.WorkerMessage) -> LoadProgress | None:
        """Note a message; gives the progress over all ranks when that is what it tells."""
        now = time.monotonic()
        if peer in self._supervisors:
            self._supervisors[peer].last = now
        match message:
            case rpc.Hello():
                self._greet(peer, message, now)
            case rpc.RankHello(rank=rank, pid=pid) if rank < self._world_size:
                self._pids[rank] = pid
                self._states[rank] = "running"
            case rpc.SupervisorStatus(ranks=ranks, resident=resident):
                self._resident.update(zip(ranks, resident, strict=False))
            case rpc.RankExited():
                self._note_exit(message)
            case rpc.RankStalled(rank=rank, pid=pid, state=state, seconds=seconds):
                self._states[rank] = f"stalled ({state})"
                self._lose(
                    "RankStalled",
                    f"Rank {rank} (process {pid}) has been in state {state} for {seconds:.1f} s.",
                    external=state in STOPPED,
                )
            case rpc.Progress(rank=rank) if rank < self._world_size:
                self._progress[rank] = message
                return self._total_progress(now)
        return None

    def _greet(self, peer: bytes, hello: rpc.Hello, now: float) -> None:
        """A supervisor that says hello as another process than before has lost its ranks."""
        before = self._supervisors.get(peer)
        self._supervisors[peer] = Seen(hello, now)
        if peer not in self._holders or before is None or before.same_process(hello):
            return
        self._holders -= {peer}
        replaced = before.hello.pod_uid != hello.pod_uid
        how = "was replaced by another of its name" if replaced else "has started anew"
        self._lose("PodLost", f"Worker pod {hello.pod_name} {how}.", external=replaced)

    def _note_exit(self, message: rpc.RankExited) -> None:
        status = message.status
        how = how_it_ended(status)
        self._states[message.rank] = how
        reason = "OutOfMemory" if "out of memory" in message.log_tail.lower() else "RankLost"
        # The kernel's SIGKILL for want of memory is no stranger's: a request may have caused it.
        external = reason == "RankLost" and -status in (signal.SIGKILL, signal.SIGTERM)
        cause = f"Rank {message.rank} (process {message.pid}) {how}."
        self._lose(reason, cause, external=external)

    def _lose(self, reason: str, cause: str, *, external: bool) -> None:
        if self._loss is None and self._group != rpc.NO_GROUP:
            self._loss = GroupLost(reason, cause, external=external)

    def raise_loss(self) -> None:
        if self._loss is not None:
            loss, self._loss = self._loss, None
            raise loss

    def raise_silence(self, limit: float, reason: str) -> None:
        """A supervisor that says nothing for ``limit`` seconds counts as hung."""
        now = time.monotonic()
        for peer, seen in self._supervisors.items():
            if now - seen.last > limit and now - self._began > limit:
                raise GroupLost(
                    reason,
                    f"Supervisor {peer.decode(errors='replace')} has been silent for "
                    f"{now - seen.last:.1f} s.",
                )

    def _total_progress(self, now: float) -> LoadProgress:
        reports = self._progress.values()
        return LoadProgress(
            tensors_done=sum(report.tensors_done for report in reports),
            tensors_total=sum(report.tensors_total for report in reports),
            bytes_done=sum(report.bytes_done for report in reports),
            bytes_total=sum(report.bytes_total for report in reports),
            seconds=now - self._began,
        )

    def rank_states(self) -> list[RankState]:
        return [
            RankState(
                rank=rank,
                pid=pid,
                state=self._states.get(rank, "running"),
                memory=MemoryReport(rank, pid, self._resident.get(rank, 0), 0, 0),
            )
            for rank, pid in sorted(self._pids.items())
        ]
