"""A core in a thread, and what it has said: the engine without its HTTP side."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from torpor_engine.core.inbox import Inbox
from torpor_engine.core.loop import Core
from torpor_engine.core.settings import CoreSettings
from torpor_engine.link import FrameBuffer, FrameSocket, frame
from torpor_protocol.arrays import unpack_i32, unpack_i64
from torpor_protocol.config import EngineConfig
from torpor_protocol.errors import TorporError
from torpor_protocol.requests import (
    AddRequest,
    ApiToCore,
    CommandReply,
    CoreToApi,
    EngineState,
    EngineStats,
    Finished,
    ShutdownCommand,
    StepOutputs,
    TokenLogprobs,
)


def _all_ended(ids: set[int], core: CoreThread) -> bool:
    return ids <= core.finished.keys()


class CoreThread:
    """A running core, and what it has said."""

    def __init__(self, config: EngineConfig, run_dir: Path) -> None:
        ours, theirs = socket.socketpair()
        self._socket = ours
        self.config = config
        self.logprobs: dict[int, list[TokenLogprobs]] = {}
        settings = CoreSettings(config, theirs.fileno(), str(run_dir))
        self.core = Core(settings, Inbox(FrameSocket(theirs)))
        self._theirs = theirs
        self.error: BaseException | None = None
        self.tokens: dict[int, list[int]] = {}
        self.finished: dict[int, Finished] = {}
        self.replies: dict[int, CommandReply] = {}
        self.states: list[EngineState] = []
        self.stats = EngineStats()
        self.widest = 0  # most requests that got a token in one step
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._buffer = FrameBuffer()
        self._decoder = msgspec.msgpack.Decoder(CoreToApi)

    def _run(self) -> None:
        try:
            self.core.run()
        except (TorporError, AssertionError) as error:
            self.error = error
            self.core.stop()

    def send(self, *messages: ApiToCore) -> None:
        self._socket.settimeout(20.0)  # a busy core lets many messages wait
        for message in messages:
            self._socket.sendall(frame(msgspec.msgpack.encode(message)))
            if isinstance(message, AddRequest):
                self.tokens[message.id] = []

    def until(self, condition: Callable[[CoreThread], bool], seconds: float = 20.0) -> None:
        """Listen until the condition holds."""
        deadline = time.monotonic() + seconds
        while not condition(self):
            self.listen()
            assert self.error is None, self.error
            assert time.monotonic() < deadline, f"{self.states[-1]} {self.replies}"

    def listen(self) -> None:
        self._socket.settimeout(0.02)
        try:
            data = self._socket.recv(2**20)
        except TimeoutError:
            return
        for body in self._buffer.feed(data):
            self._note(self._decoder.decode(body))

    def _note(self, message: CoreToApi) -> None:
        match message:
            case EngineState():
                self.states.append(message)
            case CommandReply():
                self.replies[message.call] = message
            case StepOutputs():
                self.stats = message.stats or self.stats
                ids = unpack_i64(message.ids).tolist()
                self.widest = max(self.widest, len(ids))
                for id, token in zip(ids, unpack_i32(message.tokens).tolist(), strict=True):
                    assert id not in self.finished, f"a token for request {id} after its end"
                    self.tokens[id].append(token)
                for entry in message.logprobs:
                    self.logprobs.setdefault(entry.row, []).append(entry)
                for end in message.finished:
                    assert end.id not in self.finished, f"request {end.id} ended twice"
                    self.finished[end.id] = end

    def generate(
        self, requests: list[AddRequest], seconds: float = 120.0, together: bool = True
    ) -> list[list[int]]:
        """Run requests to their end, all at once or one after the other; gives their tokens."""
        for batch in [requests] if together else [[request] for request in requests]:
            self.send(*batch)
            self.until(partial(_all_ended, {request.id for request in batch}), seconds)
        return [self.tokens[request.id] for request in requests]

    @property
    def lifecycle(self) -> str:
        return self.states[-1].lifecycle if self.states else ""

    def close(self) -> None:
        if self._thread.is_alive():
            self.send(ShutdownCommand())
        self._thread.join(20)
        assert not self._thread.is_alive()
        self.core.close()
        self._socket.close()
        self._theirs.close()
