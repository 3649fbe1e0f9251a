"""The first process of a worker pod: it starts, watches and kills the rank processes of the pod.

It imports no torch and runs no model, so nothing that goes wrong in a rank can stop it. All of its
decisions are in `formation`; here they are carried out, in one thread that waits for the engine,
the fork server, signals, and the end of its standard input, which means that its parent died.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import secrets
import signal
import time
from collections.abc import Iterable

import zmq

from torpor_protocol.rpc import NO_GROUP, Hello, SupervisorStatus, WorkerMessage
from torpor_protocol.supervision import SupervisorSettings
from torpor_protocol.transport import Dealer, PeerGone
from torpor_worker import processes
from torpor_worker.fork_client import ForkServer
from torpor_worker.forks import Exited, Forked, Kill, Ready, Report
from torpor_worker.formation import (
    Action,
    Formation,
    KillRanks,
    Leave,
    ReplaceForkServer,
    Send,
    Start,
)
from torpor_worker.launches import fork_command
from torpor_worker.out_of_memory import OomWatch
from torpor_worker.security import client_security
from torpor_worker.signals import SignalPipe
from torpor_worker.watch import StallWatch

log = logging.getLogger(__name__)
Source = int | zmq.SyncSocket
LOOK_SECONDS = 0.5
TELL_SECONDS = 1.0
# A fork server that dies at once is not started again in a tight loop.
RESTART_SECONDS = 1.0
LEAVE_SECONDS = 5.0


class Supervisor:
    """``parent``: the descriptor whose end of file says that the parent is gone."""

    def __init__(self, settings: SupervisorSettings, parent: int) -> None:
        self._settings = settings
        now = time.monotonic()
        self._formation = Formation(settings.devices, now)
        self._watch = StallWatch()
        self._fork_server = ForkServer(settings.preload)
        self._signals = SignalPipe()
        self._oom = OomWatch()
        self._hello = hello(settings)
        self._parent = parent
        self._sequence = 0
        self._running = True
        self._look_at = self._tell_at = self._start_at = now
        security = client_security(settings.keys)
        self._dealer = Dealer.connect(settings.endpoint, settings.identity.encode(), security)

    def run(self) -> None:
        """Until the parent dies, the engine says Shutdown, or SIGTERM comes."""
        processes.adopt_orphans()
        try:
            while self._running:
                self._tick(time.monotonic())
                self._take(self._wait())
        finally:
            self._leave()

    def _wait(self) -> set[Source]:
        """Sleep until something is to be done; gives what is readable."""
        poller = zmq.Poller()
        sources: list[Source] = [self._parent, self._signals.fileno(), self._dealer.socket]
        if self._fork_server.pid:
            sources.append(self._fork_server.fileno())
        for source in sources:
            poller.register(source, zmq.POLLIN)
        due = min(self._look_at, self._tell_at) - time.monotonic()
        timeout_ms = math.ceil(max(0.0, due) * 1000)
        return {source for source, _ in poller.poll(timeout_ms)}

    def _take(self, readable: set[Source]) -> None:
        if self._parent in readable and not os.read(self._parent, 4096):
            log.debug("Standard input has ended: every rank ends.")
            self._running = False
        if self._signals.fileno() in readable:
            self._on_signals(self._signals.read())
        if self._fork_server.pid and self._fork_server.fileno() in readable:
            self._on_fork_server()
        # One at a time: what it asks for is done before the next is looked at.
        received = self._dealer.receive(0) if self._running else None
        if received is not None:
            group, _, message = received
            self._do(self._formation.on_message(group, message, time.monotonic()))

    # Events

    def _on_signals(self, numbers: set[int]) -> None:
        if signal.SIGTERM in numbers:
            log.info("SIGTERM: every rank ends.")
            self._running = False
        if signal.SIGCHLD in numbers:
            self._sweep()

    def _sweep(self) -> None:
        """Ranks whose fork server died are ours, and so is whatever a dead rank left behind."""
        for pid, status in processes.sweep_orphans(keep=self._fork_server.pid):
            tail = self._oom.explained(status, "Its fork server died.")
            self._do(self._formation.on_reaped(pid, status, tail, time.monotonic()))

    def _on_fork_server(self) -> None:
        reports = self._fork_server.read()
        if reports is None:
            self._lose_fork_server()
            return
        for report in reports:
            self._do(self._on_report(report))

    def _on_report(self, report: Report) -> list[Action]:
        now = time.monotonic()
        match report:
            case Ready():
                return self._formation.on_ready(now)
            case Forked(rank=rank, pid=pid):
                return self._formation.on_forked(rank, pid)
            case Exited(rank=rank, pid=pid, status=status, log_tail=tail):
                self._sweep()
                tail = self._oom.explained(status, tail)
                return self._formation.on_exited(rank, pid, status, tail, now)

    def _lose_fork_server(self) -> None:
        status = self._fork_server.end()
        log.warning("The fork server ended with status %d; another one starts.", status)
        why = f"The fork server ended with status {status} before it started this rank."
        tail = self._oom.explained(status, why)
        self._do(self._formation.on_fork_server_lost(status, tail, time.monotonic()))
        self._sweep()

    def _tick(self, now: float) -> None:
        if not self._fork_server.pid and now >= self._start_at:
            self._start_at = now + RESTART_SECONDS
            self._fork_server.start()
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            self._oom.look()
            pids = [*self._formation.pids().values(), self._fork_server.pid]
            sightings = {pid: processes.sight(pid) for pid in pids if pid}
            stalls = self._watch.look(sightings, now)
            self._do(self._formation.on_stalls(stalls, self._fork_server.pid))
            self._do(self._formation.on_tick(now))
        if now >= self._tell_at:
            self._tell_at = now + TELL_SECONDS
            self._tell()

    # What goes to the engine

    def _send(self, group: bytes, message: WorkerMessage) -> None:
        """An engine that has not read for so long that its queue is full misses this, too."""
        self._sequence += 1
        with contextlib.suppress(PeerGone):
            self._dealer.send(group, self._sequence, message)

    def _tell(self) -> None:
        """Hello is repeated as long as the pod lives: an engine that starts anew knows nobody, and
        a Form of it replaces whatever group is here."""
        self._send(NO_GROUP, self._hello)
        pids = self._formation.pids()
        resident = [processes.resident_bytes(pid) for pid in pids.values()]
        self._send(self._formation.group, SupervisorStatus(list(pids), resident))

    # Actions

    def _do(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Send(group=group, message=message):
                    self._send(group, message)
                case Start(form=form):
                    self._fork_server.send(fork_command(form, self._settings))
                case KillRanks():
                    self._fork_server.send(Kill())
                case ReplaceForkServer(why=why):
                    log.warning("The fork server is replaced: %s.", why)
                    self._lose_fork_server()
                case Leave():
                    self._running = False

    def _leave(self) -> None:
        """The death of the fork server kills its ranks; wait until each of them is reaped."""
        if self._fork_server.pid:
            self._fork_server.end()
        deadline = time.monotonic() + LEAVE_SECONDS
        while processes.children_of(os.getpid()) and time.monotonic() < deadline:
            processes.sweep_orphans(keep=0)
            time.sleep(0.005)
        self._dealer.close()
        self._signals.close()


def hello(settings: SupervisorSettings) -> Hello:
    """Made once in the life of a process: its ``incarnation`` tells it from the next."""
    return Hello(
        deployment_uid=settings.deployment_uid,
        replica=settings.replica,
        revision=settings.revision,
        pod_uid=settings.pod_uid,
        pod_name=settings.pod_name,
        address=settings.address,
        pid=os.getpid(),
        devices=settings.devices,
        incarnation=secrets.token_hex(8),
    )
