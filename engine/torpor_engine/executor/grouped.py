"""What all executors over the wire share: formation, calls, liveness, disbanding.

They differ only in how a supervisor comes to life (``ensure_supervisors``). Loss is noticed in one
place, ``_pump``: a rank's exit or stop as its supervisor reports it, a supervisor's silence, a
missed deadline, an error that a rank answers with.
"""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import zmq

from torpor_engine.executor.base import CONTROL_TIMEOUT, Executor, ExecutorHooks
from torpor_engine.executor.calls import GroupCall
from torpor_engine.executor.formation import Member, plan_formation
from torpor_engine.executor.roster import Roster
from torpor_protocol import rpc
from torpor_protocol.config import EngineConfig
from torpor_protocol.errors import DeadlineMissed, GroupLost, RankFailed
from torpor_protocol.methods import encode_call
from torpor_protocol.requests import RankState
from torpor_protocol.transport import CurveKeys, PeerGone, Router

log = logging.getLogger(__name__)

SUPERVISOR_SILENCE = 8.0
POLL_SECONDS = 0.1
CAUSE_SECONDS = 1.5
DISBAND_SECONDS = 10.0


class GroupExecutor(Executor):
    """Base of the executors whose ranks are other processes. ``supervisor_lost``: the reason of a
    loss by a supervisor's end or silence."""

    supervisor_lost: ClassVar = "SupervisorLost"

    def __init__(self, config: EngineConfig, hooks: ExecutorHooks) -> None:
        super().__init__(config, hooks)
        self._router, self._endpoint, self._server_keys = self._open_router()
        self._roster = Roster(config.parallel.world_size)
        self._calls: dict[int, GroupCall] = {}
        self._failure: GroupLost | None = None
        self._sequence = 0
        self._group = rpc.NO_GROUP
        self._members: list[Member] = []
        self._rank_peers: list[bytes] = []

    @abstractmethod
    def _open_router(self) -> tuple[Router, str, CurveKeys | None]:
        """Bind the wire: the router, its endpoint as peers reach it, its CURVE keys if any."""

    @abstractmethod
    def ensure_supervisors(self) -> None:
        """Start the supervisors that are missing. Raises GroupLost when one cannot live."""

    @abstractmethod
    def check_supervisors(self) -> None:
        """Raise GroupLost when a supervisor is gone; cheap."""

    @abstractmethod
    def rendezvous(self, group: str) -> tuple[str, str]:
        """Where the ranks of a group meet: (store, network interface)."""

    # Formation

    def _init_executor(self) -> None:
        self.ensure_supervisors()
        deadline = time.monotonic() + CONTROL_TIMEOUT
        while self._roster.devices < self.config.parallel.world_size:
            self._wait(deadline, "The supervisors did not say hello in time.")
        self._group = rpc.new_group_id()
        self.group = self._group.hex()
        self._rank_peers = [
            self._rank_peer(rank) for rank in range(self.config.parallel.world_size)
        ]
        self._router.current_group = self._group
        store, interface = self.rendezvous(self.group)
        self._members = plan_formation(
            self.config, self._roster.hellos(), self.group, store, interface, self._server_keys
        )
        self._roster.begin(self._group, (member.supervisor for member in self._members))
        for member in self._members:
            for assignment, keys in zip(member.form.assignments, member.form.keys, strict=True):
                self._router.admit(self._rank_peer(assignment.rank), keys.public)
            self._broadcast([member.supervisor], 0, member.form)
        deadline = time.monotonic() + self.config.recovery.load_timeout
        while not self._roster.complete:
            self._wait(deadline, "The ranks did not come up in time.")

    def _rank_peer(self, rank: int) -> bytes:
        return f"rank-{rank}-{self.group}".encode()

    def disband(self) -> None:
        if self._group != rpc.NO_GROUP:
            self._send_disband()
            for peer in self._rank_peers:
                self._router.revoke(peer)
            self._calls.clear()
            self._group = rpc.NO_GROUP
            self._router.current_group = rpc.NO_GROUP
            self._roster.end()
            self._members = []
        super().disband()

    def _send_disband(self) -> None:
        """Ask every supervisor that still lives to kill its ranks, and wait for its word."""
        asked = {member.supervisor for member in self._members}
        waiting: set[bytes] = set()
        for supervisor in asked:
            try:
                self._router.send(supervisor, self._group, 0, rpc.Disband())
                waiting.add(supervisor)
            except PeerGone:
                log.info("Supervisor %s is gone; its ranks died with it.", supervisor.decode())
        deadline = time.monotonic() + DISBAND_SECONDS
        while waiting and time.monotonic() < deadline:
            for received in self._router.receive(int(POLL_SECONDS * 1000)):
                if isinstance(received.message, rpc.Disbanded) and received.group == self._group:
                    waiting.discard(received.peer)
                elif self._is_of_supervisor(received.peer, received.message):
                    self._roster.take(received.peer, received.message)
            waiting = {peer for peer in waiting if self.supervisor_alive(peer)}
            self.hooks.while_waiting()
        for supervisor in waiting:
            self.kill_supervisor(supervisor)

    @abstractmethod
    def supervisor_alive(self, supervisor: bytes) -> bool: ...

    @abstractmethod
    def kill_supervisor(self, supervisor: bytes) -> None:
        """End a supervisor that does not obey, and with it its ranks."""

    # Calls

    def collective_rpc(  # type: ignore[override]
        self,
        method: str,
        timeout: float | None = None,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        non_block: bool = False,
        *,
        output_rank: int = -1,
        result_type: Any = Any,
    ) -> list[Any] | GroupCall:
        if not self.group:
            raise GroupLost("RankLost", "There is no group to call.")
        if not self._calls:
            self._failure = None
        self._sequence += 1
        timeout = CONTROL_TIMEOUT if timeout is None else timeout
        patient = timeout > self.step_timeout
        pump = self._pump_patiently if patient else self._pump
        call = GroupCall(method, self.config.parallel.world_size, timeout, result_type, pump)
        body = encode_call(method, tuple(args), kwargs or {}, output_rank)
        self._calls[self._sequence] = call
        self._broadcast(self._rank_peers, self._sequence, body)
        return call if non_block else self._finish(call)

    def _finish(self, call: GroupCall) -> list[Any]:
        try:
            return call.result()
        except RankFailed as failure:
            first = self._failure or failure
            self._look_for_cause(first)
            raise first from None

    def _look_for_cause(self, failure: GroupLost) -> None:
        """A rank that loses its neighbour fails before the supervisor has told of the death: give
        the better explanation a moment to arrive. User errors are explanations already."""
        if failure.fix:
            return
        deadline = time.monotonic() + CAUSE_SECONDS
        while time.monotonic() < deadline:
            self._pump(deadline - time.monotonic())

    def _broadcast(self, peers: list[bytes], sequence: int, message: rpc.EngineMessage) -> None:
        try:
            self._router.broadcast(peers, self._group, sequence, message)
        except PeerGone as gone:
            self._look_for_cause(gone)
            raise

    # Liveness

    def check_health(self) -> None:
        self._dispatch(0)
        self.check_supervisors()

    def _pump(self, seconds: float) -> None:
        """Take messages for up to ``seconds`` or until some came. Raises GroupLost."""
        self._dispatch(min(seconds, POLL_SECONDS))
        self.check_supervisors()

    def _pump_patiently(self, seconds: float) -> None:
        """The same in calls that take long: the core's own messages are taken as well."""
        self._pump(seconds)
        self.hooks.while_waiting()

    def _wait(self, deadline: float, sentence: str) -> None:
        if time.monotonic() > deadline:
            raise DeadlineMissed(sentence)
        self._pump_patiently(POLL_SECONDS)

    def _dispatch(self, seconds: float) -> None:
        for received in self._router.receive(int(max(seconds, 0) * 1000)):
            message = received.message
            if self._speaks_for_another(received.peer, message):
                continue
            if isinstance(message, rpc.Hello) and not self.takes_hello(received.peer, message):
                continue
            if isinstance(message, rpc.Reply):
                call = self._calls.get(received.sequence)
                if call is not None:
                    call.accept(message)
                    if call.done():
                        self._failure = self._failure or call.failure
                        del self._calls[received.sequence]
            else:
                progress = self._roster.take(received.peer, message)
                if progress is not None:
                    self.hooks.on_progress(progress)
        self._roster.raise_loss()
        if self._members:
            self._roster.raise_silence(SUPERVISOR_SILENCE, self.supervisor_lost)

    def _speaks_for_another(self, peer: bytes, message: rpc.WorkerMessage) -> bool:
        """The wire proves who the peer is; what it says of ranks is checked here: a rank speaks for
        itself only, and ends of ranks are a supervisor's to tell."""
        match message:
            case rpc.Reply(rank=rank) | rpc.RankHello(rank=rank) | rpc.Progress(rank=rank):
                foreign = peer != self._rank_peer(rank)
            case _:
                foreign = peer in self._rank_peers
        if foreign:
            log.warning("%s sent a %s of another.", peer.decode(), type(message).__name__)
        return foreign

    def _is_of_supervisor(self, peer: bytes, message: rpc.WorkerMessage) -> bool:
        """A supervisor's sign of life, to be noted whatever else is going on."""
        if isinstance(message, rpc.Hello):
            return peer not in self._rank_peers and self.takes_hello(peer, message)
        return isinstance(message, rpc.SupervisorStatus)

    def takes_hello(self, peer: bytes, hello: rpc.Hello) -> bool:
        """Whether this supervisor is one of ours; a hello that is refused changes nothing."""
        return True

    def fileno(self) -> int:
        return int(self._router.socket.getsockopt(zmq.FD))

    def wire_rejected(self) -> dict[str, int]:
        return dict(self._router.rejected)

    def rank_states(self) -> list[RankState]:
        return self._roster.rank_states()

    def shutdown(self) -> None:
        super().shutdown()
        self._router.close()
