"""A real supervisor with real ranks, and the engine's end of the wire in the hands of a test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import psutil

from engine_builders import engine_config
from torpor_protocol.config import EngineConfig, RankAssignment
from torpor_protocol.methods import encode_call
from torpor_protocol.rpc import (
    Disband,
    Disbanded,
    EngineMessage,
    Form,
    Hello,
    RankHello,
    RankKeys,
    Reply,
    WorkerMessage,
    new_group_id,
)
from torpor_protocol.supervision import SupervisorSettings, encode_settings
from torpor_protocol.transport import CurveKeys, CurveServer, IpcSecurity, Received, Router

NAME = b"supervisor-0"
PATIENCE = 20.0
SUPPORT = Path(__file__).parent
M = TypeVar("M", bound=WorkerMessage)


def fake_config(worker: str = "FakeWorker") -> EngineConfig:
    return engine_config(worker_class=f"fake_worker:{worker}")


def fake_form(group: bytes, ranks: int = 1, worker: str = "FakeWorker") -> Form:
    """What an engine on the same machine sends."""
    assignments = [
        RankAssignment(rank, rank, ranks, group.hex(), store="file:///nowhere")
        for rank in range(ranks)
    ]
    return Form(fake_config(worker), assignments, [RankKeys()] * ranks)


class FakePod:
    """``devices``: ranks that the supervisor says it holds. ``path``: further folders from which
    its processes import. Close it, or use it in a ``with``."""

    def __init__(
        self,
        folder: Path,
        devices: int = 3,
        preload: Sequence[str] = (),
        path: Sequence[Path] = (),
        curve: bool = False,
    ) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self.folder = folder
        self.server = CurveKeys.generate() if curve else None
        self.router = Router(CurveServer(self.server) if self.server else IpcSecurity())
        self.endpoint = self.router.bind(
            "tcp://127.0.0.1:0" if curve else f"ipc://{folder / 'workers.sock'}"
        )
        self._unread: list[Received] = []
        self._sequence = 100
        self._greeted = False
        self.group = b""
        settings = SupervisorSettings(
            endpoint=self.endpoint,
            identity=NAME.decode(),
            devices=devices,
            deployment_uid="uid-1",
            replica=2,
            revision="abc",
            pod_uid="uid-2",
            pod_name="pod-3",
            address="127.0.0.1",
            interface="lo",
            keys=self.admit(NAME),
            preload=tuple(preload),
        )
        self.log = folder / "log"
        # Unbuffered: a buffered writer would flush into a dead supervisor when it is collected.
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "torpor_worker", "supervisor"],
                stdin=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(map(str, [SUPPORT, *path])),
                    "OMP_NUM_THREADS": "1",
                },
            )
        assert self.process.stdin is not None
        self.process.stdin.write(encode_settings(settings))
        self.seen = {self.process.pid}

    def __enter__(self) -> FakePod:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.router.close()

    # The wire

    def admit(self, name: bytes) -> RankKeys:
        if self.server is None:
            self.router.admit(name)
            return RankKeys()
        own = CurveKeys.generate()
        self.router.admit(name, own.public)
        return RankKeys(own.public, own.secret, self.server.public)

    def send(self, peer: bytes, message: EngineMessage, group: bytes | None = None) -> int:
        self._sequence += 1
        self.router.send(peer, self.group if group is None else group, self._sequence, message)
        return self._sequence

    def expect(
        self,
        kind: type[M],
        matches: Callable[[Received], bool] = lambda _: True,
        within: float = PATIENCE,
    ) -> tuple[Received, M]:
        """The next message of this kind; others stay for a later ``expect``."""
        deadline = time.monotonic() + within
        while True:
            for index, received in enumerate(self._unread):
                if isinstance(received.message, kind) and matches(received):
                    del self._unread[index]
                    return received, received.message
            left = deadline - time.monotonic()
            if left <= 0:
                raise AssertionError(
                    f"no {kind.__name__} within {within} s; unread: {self._unread[-5:]}; "
                    f"log: {self.log.read_text()[-2000:]}"
                )
            self._unread += self.router.receive(int(min(left, 0.2) * 1000) + 1)

    def unread(self, kind: type[M], wait: float = 0.0) -> list[M]:
        """Messages of this kind that came, also within the next ``wait`` seconds."""
        deadline = time.monotonic() + wait
        while True:
            left = deadline - time.monotonic()
            self._unread += self.router.receive(int(max(left, 0) * 1000))
            if left <= 0:
                break
        return [found.message for found in self._unread if isinstance(found.message, kind)]

    # Groups and calls

    def form(
        self,
        ranks: int = 1,
        worker: str = "FakeWorker",
        hello: bool = True,
        within: float = PATIENCE,
    ) -> dict[int, int]:
        """Form a new group; gives the process id of each rank once all have said hello."""
        if not self._greeted:
            self.expect(Hello)
            self._greeted = True
        self._unread.clear()
        self.group = self.router.current_group = new_group_id()
        form = fake_form(self.group, ranks, worker)
        keys = [self.admit(self.peer(rank)) for rank in range(ranks)]
        self.send(NAME, msgspec.structs.replace(form, keys=keys))
        pids: dict[int, int] = {}
        while hello and len(pids) < ranks:
            _, message = self.expect(RankHello, within=within)
            pids[message.rank] = message.pid
        self.seen |= self.descendants()
        return pids

    def disband(self) -> None:
        group = self.group
        self.send(NAME, Disband())
        self.expect(Disbanded, lambda received: received.group == group)
        self.router.current_group = bytes(16)

    def peer(self, rank: int) -> bytes:
        return f"rank-{rank}-{self.group.hex()}".encode()

    def reply(self, rank: int, sequence: int, within: float = PATIENCE) -> Reply:
        peer = self.peer(rank)
        found = self.expect(
            Reply, lambda got: got.peer == peer and got.sequence == sequence, within
        )
        return found[1]

    def call(
        self, method: str, *args: Any, rank: int = 0, output_rank: int = -1, **kwargs: Any
    ) -> Reply:
        call = encode_call(method, args, kwargs, output_rank)
        return self.reply(rank, self.send(self.peer(rank), call))

    def value(self, method: str, *args: Any, rank: int = 0, **kwargs: Any) -> Any:
        reply = self.call(method, *args, rank=rank, **kwargs)
        assert reply.error is None, reply.error
        return msgspec.msgpack.decode(reply.value)

    # Processes

    def descendants(self) -> set[int]:
        """Every process under the supervisor."""
        try:
            return {child.pid for child in psutil.Process(self.process.pid).children(True)}
        except psutil.NoSuchProcess:
            return set()

    def fork_server(self) -> int:
        """The one child of the supervisor."""
        (child,) = psutil.Process(self.process.pid).children()
        return child.pid

    def all_gone(self, within: float = 5.0) -> bool:
        """Whether everything that was ever seen of this pod ends, with nobody's help."""
        return eventually(lambda: not any(map(alive, self.seen)), within)


def alive(pid: int) -> bool:
    """A zombie is dead: reaping it is its parent's business."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def eventually(condition: Callable[[], bool], within: float = 5.0) -> bool:
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def stop(pid: int) -> None:
    """SIGSTOP, and proof that it took."""
    os.kill(pid, signal.SIGSTOP)
    assert eventually(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)
