"""A core without a model, in the API's own process: the same seam, tokens from a function.

Tests of the API need a core that can be quick or slow, awake or asleep, and whose every token is
known beforehand; they need neither a scheduler nor a worker.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from torpor_engine.api.core_link import Command, OutputHandler
from torpor_protocol.arrays import pack_i32, pack_i64, unpack_i32
from torpor_protocol.errors import EngineDead
from torpor_protocol.requests import (
    AddRequest,
    CommandReply,
    DrainCommand,
    EngineState,
    EngineStats,
    Finished,
    Lifecycle,
    OnCallCommand,
    SleepCommand,
    Started,
    StepOutputs,
    TokenLogprobs,
)

Script = Callable[[AddRequest, int], int]  # a request and a position to the token there
VOCAB = 1024
FIRST_PLAIN = 4  # ids below are special tokens of the tiny tokenizer
EOS = 2


def hashed(request: AddRequest, position: int) -> int:
    """Any token but a special one, by prompt, seed and position: no two requests look alike."""
    key = request.prompt + request.sampling.seed.to_bytes(8, "little") + position.to_bytes(4, "big")
    digest = hashlib.sha256(key).digest()
    return FIRST_PLAIN + int.from_bytes(digest[:4], "big") % (VOCAB - FIRST_PLAIN)


def says(tokens: Sequence[int]) -> Script:
    """These tokens, then the end of the text."""
    return lambda _, position: tokens[position] if position < len(tokens) else EOS


class FakeCore:
    """``step_seconds``: pause after each step; ``paused`` stops the steps. ``submitted`` and
    ``aborted`` keep what the API said, in order."""

    def __init__(
        self, script: Script = hashed, *, step_seconds: float = 0.0, max_num_seqs: int = 8
    ) -> None:
        self.on_outputs: OutputHandler = lambda outputs: None
        self.script = script
        self.step_seconds = step_seconds
        self.max_num_seqs = max_num_seqs
        self.wake_seconds = 0.0
        self.wake_on_request = True
        self.paused = False
        self.dead = False
        self.command_error = ""
        self.submitted: list[AddRequest] = []
        self.aborted: list[int] = []
        self.commands: list[Command] = []
        self._state = EngineState(lifecycle="Awake", kv_blocks=64, block_size=16)
        self._queue: dict[int, AddRequest] = {}
        self._position: dict[int, int] = {}
        self._steps = 0
        self._made = 0
        self._task: asyncio.Task[None] | None = None

    # The seam

    def submit(self, request: AddRequest) -> None:
        if self.dead:
            raise EngineDead("The core is gone.")
        self.submitted.append(request)
        self._queue[request.id] = request
        if self._state.lifecycle == "Asleep" and self.wake_on_request:
            self.set_state("Waking")
        self.go()

    def abort(self, ids: list[int]) -> None:
        self.aborted += ids
        for request_id in ids:
            self._queue.pop(request_id, None)

    async def command(self, command: Command) -> CommandReply:
        if self.dead:
            raise EngineDead("The core is gone.")
        self.commands.append(command)
        await asyncio.sleep(0)
        if self.command_error:
            return CommandReply(call=command.call, error=self.command_error, fix="Try it later.")
        if isinstance(command, DrainCommand):
            while self._queue:
                await asyncio.sleep(0.01)
        elif isinstance(command, OnCallCommand):
            self._state = msgspec.structs.replace(self._state, on_call=command.value)
        elif isinstance(command, SleepCommand):
            self.set_state("Asleep", command.level)
        else:
            self.set_state("Awake")
            self.go()
        return CommandReply(call=command.call, seconds=0.25)

    def state(self) -> EngineState:
        return self._state

    def stats(self) -> EngineStats:
        running = len(self._position.keys() & self._queue.keys())
        return EngineStats(
            running=running,
            waiting=len(self._queue) - running,
            steps=self._steps,
            generation_tokens=self._made,
        )

    # What tests do to it; on the event loop

    def set_state(self, lifecycle: Lifecycle, level: int = 1) -> None:
        asleep = lifecycle in ("Asleep", "Waking")
        self._state = EngineState(
            lifecycle=lifecycle,
            level=level if asleep else 0,
            asleep=("weights", "kv_cache") if asleep else (),
            kv_blocks=64,
            block_size=16,
            last_sleep_seconds=0.5 if asleep else self._state.last_sleep_seconds,
            last_wake_seconds=0.25 if lifecycle == "Awake" else -1.0,
        )

    def end(self, request_id: int, finished: Finished) -> None:
        """End a request as the core would, for whatever reason."""
        self._queue.pop(request_id, None)
        self.on_outputs(StepOutputs(ids=b"", tokens=b"", finished=[finished]))

    def go(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    # Steps

    async def _run(self) -> None:
        if self._state.lifecycle == "Waking":
            await asyncio.sleep(self.wake_seconds)
            self.set_state("Awake")
        while self._queue and not self.paused and self._state.lifecycle == "Awake":
            self.on_outputs(self._step())
            await asyncio.sleep(self.step_seconds)

    def _step(self) -> StepOutputs:
        self._steps += 1
        ids: list[int] = []
        tokens: list[int] = []
        finished: list[Finished] = []
        started: list[Started] = []
        logprobs: list[TokenLogprobs] = []
        for request_id, request in list(self._queue.items())[: self.max_num_seqs]:
            position = self._position.get(request_id, 0)
            if position == 0:
                started.append(Started(request_id, cached_tokens=0))
            token = self.script(request, position)
            end = self._end_of(request, position, token)
            if end is None or end.stop_token < 0:
                ids.append(request_id)
                tokens.append(token)
                if request.sampling.logprobs >= 0:
                    logprobs.append(_logprobs(request, token))
            self._position[request_id] = position + 1
            if end is not None:
                finished.append(end)
                del self._queue[request_id], self._position[request_id]
        self._made += len(tokens)
        return StepOutputs(pack_i64(ids), pack_i32(tokens), finished, started, logprobs)

    def _end_of(self, request: AddRequest, position: int, token: int) -> Finished | None:
        sampling = request.sampling
        is_eos = token == EOS and not sampling.ignore_eos and position >= sampling.min_tokens
        if is_eos or token in sampling.stop_token_ids:
            return Finished(request.id, "stop", stop_token=token)
        return Finished(request.id, "length") if position + 1 >= sampling.max_tokens else None


def _logprobs(request: AddRequest, token: int) -> TokenLogprobs:
    """The chosen token is the best; the alternatives are the next ids, each half as likely."""
    others = [FIRST_PLAIN + (token + i) % (VOCAB - FIRST_PLAIN) for i in range(VOCAB)]
    top = [token, *[other for other in others if other != token]][: request.sampling.logprobs]
    values = [-0.7 * (i + 1) for i in range(len(top))]
    return TokenLogprobs(request.id, token, -0.7, 1, pack_i32(top), values)


def prompt_ids(request: AddRequest) -> list[int]:
    ids: list[int] = np.asarray(unpack_i32(request.prompt)).tolist()
    return ids
