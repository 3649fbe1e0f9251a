"""The core without workers: an executor over the hash runner, and a core in a thread to talk to.

``HashExecutor.faults`` lists what goes wrong at which call, so that every loss happens where a test
wants it.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hash_model import HashRunner
from torpor_engine.core.inbox import Inbox
from torpor_engine.core.loop import Core
from torpor_engine.core.settings import CoreSettings
from torpor_engine.executor import Executor
from torpor_engine.link import FrameBuffer, FrameSocket, frame
from torpor_protocol.arrays import unpack_i32, unpack_i64
from torpor_protocol.config import EngineConfig, KVCacheSpec, MemoryReport
from torpor_protocol.errors import GroupLost, TorporError
from torpor_protocol.requests import (
    AddRequest,
    ApiToCore,
    CommandReply,
    CoreToApi,
    EngineState,
    Finished,
    ShutdownCommand,
    StepOutputs,
)

Fault = Callable[[str], None]


class Answered(msgspec.Struct):
    values: list[Any]

    def done(self) -> bool:
        return True

    def result(self) -> list[Any]:
        return self.values


class HashExecutor(Executor):
    """One rank that exists only as a mirror. ``calls`` is the log of methods that were called."""

    faults: list[Fault]
    calls: list[str]

    def _init_executor(self) -> None:
        self.formed = getattr(self, "formed", 0) + 1
        self.group = f"{self.formed:032x}"
        self.runner: HashRunner | None = None

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
    ) -> list[Any] | Answered:
        self.calls.append(method)
        for fault in list(self.faults):
            fault(method)
        if not self.group:
            raise GroupLost("RankLost", "There is no group.")
        value = getattr(self, f"do_{method}", lambda *_: None)(*args)
        return Answered([value]) if non_block else [value]

    def check_health(self) -> None:
        for fault in list(self.faults):
            fault("check_health")

    def do_get_kv_cache_specs(self) -> KVCacheSpec:
        return KVCacheSpec(2, 2, 16, self.config.cache.block_size, "float32", page_bytes=1024)

    def do_determine_available_memory(self) -> int:
        return self.config.cache.kv_cache_memory or 2**40

    def do_profile_seconds(self) -> float:
        return 0.01

    def do_initialize_cache(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.do_reset()

    def do_reset(self) -> None:
        self.runner = HashRunner(self.config, self.num_blocks)

    def do_execute_model(self, output: Any) -> None:
        assert self.runner is not None, "a step ran while the cache was asleep"
        self.pending = self.runner.execute(output)

    def do_sample_tokens(self) -> Any:
        return self.pending

    def do_sleep(self, level: int) -> MemoryReport:
        self.runner = None
        return MemoryReport(0, 1, 0, 0, 0, freed=level)

    def do_wake_up(self, tags: list[str]) -> MemoryReport:
        if "kv_cache" in tags:
            self.do_reset()
        return MemoryReport(0, 1, 0, 0, 0)


class CoreThread:
    """A running core, and what it has said."""

    def __init__(self, config: EngineConfig, run_dir: Path, *faults: Fault) -> None:
        ours, theirs = socket.socketpair()
        self._socket = ours
        target = "hash_executor:HashExecutor"
        HashExecutor.faults = list(faults)
        HashExecutor.calls = []
        config = msgspec.structs.replace(config, executor=target)
        settings = CoreSettings(config, theirs.fileno(), str(run_dir))
        self.core = Core(settings, Inbox(FrameSocket(theirs)))
        self._theirs = theirs
        self.error: BaseException | None = None
        self.tokens: dict[int, list[int]] = {}
        self.finished: dict[int, Finished] = {}
        self.replies: dict[int, CommandReply] = {}
        self.states: list[EngineState] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._buffer = FrameBuffer()
        self._decoder = msgspec.msgpack.Decoder(CoreToApi)
        ours.settimeout(0.02)

    def _run(self) -> None:
        try:
            self.core.run()
        except (TorporError, AssertionError) as error:
            self.error = error
            self.core.stop()

    def send(self, *messages: ApiToCore) -> None:
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
                ids = unpack_i64(message.ids).tolist()
                for id, token in zip(ids, unpack_i32(message.tokens).tolist(), strict=True):
                    assert id not in self.finished, f"a token for request {id} after its end"
                    self.tokens[id].append(token)
                for end in message.finished:
                    assert end.id not in self.finished, f"request {end.id} ended twice"
                    self.finished[end.id] = end

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
