"""The API process's side of the link: starts the core process, submits, commands, hears news."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import cast

import msgspec

from torpor_engine.api.core_link import Command
from torpor_engine.core.settings import CoreSettings
from torpor_engine.executor.place import Place
from torpor_engine.link import FrameBuffer, frame
from torpor_protocol.config import EngineConfig
from torpor_protocol.errors import EngineDead
from torpor_protocol.requests import (
    AbortRequests,
    AddRequest,
    ApiToCore,
    CommandReply,
    CoreToApi,
    EngineState,
    EngineStats,
    ShutdownCommand,
    StepOutputs,
)

log = logging.getLogger(__name__)

STOP_SECONDS = 15.0


def _ignore_outputs(_: StepOutputs) -> None:
    return None


def _ignore_state(_: EngineState) -> None:
    return None


class CoreClient(asyncio.Protocol):
    """One core process and the link to it. Everything runs on the event loop.

    ``on_outputs`` and ``on_state`` are called for each message; ``dead`` is set when the core is
    gone, for whatever reason."""

    def __init__(self, config: EngineConfig, run_dir: str, place: Place | None = None) -> None:
        self._config = config
        self._run_dir = run_dir
        self._place = place or Place()
        self._buffer = FrameBuffer()
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(CoreToApi)
        self._calls: dict[int, asyncio.Future[CommandReply]] = {}
        self._numbers = itertools.count(1)
        self._state = EngineState(lifecycle="Starting")
        self._stats = EngineStats()
        self._transport: asyncio.WriteTransport | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.on_outputs: Callable[[StepOutputs], None] = _ignore_outputs
        self.on_state: Callable[[EngineState], None] = _ignore_state
        self.dead = asyncio.Event()

    # Process

    async def start(self) -> None:
        """Start the core process; it reports by EngineState from then on."""
        ours, theirs = socket.socketpair()
        settings = CoreSettings(self._config, theirs.fileno(), self._run_dir, self._place)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "torpor_engine.core"],
            stdin=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(settings) + b"\n")
        self._process.stdin.flush()
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self, sock=ours)

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    async def stop(self) -> int:
        """End the core: ask, wait, then SIGKILL. Gives its exit status."""
        if self._process is None:
            return 0
        self._send(ShutdownCommand())
        try:
            await asyncio.wait_for(self.dead.wait(), STOP_SECONDS)
        except TimeoutError:
            log.warning("The core did not end within %.0f s; killing it.", STOP_SECONDS)
        return await self._reap()

    def kill(self) -> None:
        """End the core and its workers at once."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def exit_status(self) -> int:
        """Exit status of a core that is gone."""
        return await self._reap()

    async def _reap(self) -> int:
        assert self._process is not None
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            return await asyncio.to_thread(self._process.wait, 2.0)
        except subprocess.TimeoutExpired:
            self.kill()
            return await asyncio.to_thread(self._process.wait)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's.
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        for body in self._buffer.feed(data):
            self._take(self._decoder.decode(body))

    def connection_lost(self, exc: Exception | None) -> None:
        self.dead.set()
        if self._state.lifecycle != "Failed":
            message = "The engine's core process ended."
            self._state = msgspec.structs.replace(
                self._state, lifecycle="Failed", reason="EngineDead", message=message
            )
        for call in self._calls.values():
            if not call.done():
                call.set_exception(EngineDead("The engine's core process ended."))
        self._calls.clear()

    def _take(self, message: CoreToApi) -> None:
        match message:
            case StepOutputs():
                if message.stats is not None:
                    self._stats = message.stats
                self.on_outputs(message)
            case EngineState():
                self._state = message
                self.on_state(message)
            case CommandReply():
                call = self._calls.pop(message.call, None)
                if call is not None and not call.done():
                    call.set_result(message)

    # CoreLink

    def _send(self, message: ApiToCore) -> None:
        if self._transport is not None and not self.dead.is_set():
            self._transport.write(frame(self._encoder.encode(message)))

    def submit(self, request: AddRequest) -> None:
        if self.dead.is_set():
            raise EngineDead("The engine's core process ended.", "Start the server again.")
        self._send(request)

    def abort(self, ids: list[int]) -> None:
        self._send(AbortRequests(ids))

    async def command(self, command: Command) -> CommandReply:
        """Send a command under a number of its own and wait for the answer.

        Raises EngineDead."""
        if self.dead.is_set():
            raise EngineDead("The engine's core process ended.", "Start the server again.")
        number = next(self._numbers)
        future: asyncio.Future[CommandReply] = asyncio.get_running_loop().create_future()
        self._calls[number] = future
        self._send(msgspec.structs.replace(command, call=number))
        try:
            return await future
        finally:
            self._calls.pop(number, None)

    def state(self) -> EngineState:
        return self._state

    def stats(self) -> EngineStats:
        return self._stats
