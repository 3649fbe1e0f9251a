"""Feed a core as the API process would, without one: jobs in, times of its steps out.

Requests and tokens go through the real socket pair and the real encoding; only the other side does
nothing with them. So a step here costs what it costs in the core process of a server.
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from torpor_engine.core.inbox import Inbox
from torpor_engine.link import FrameSocket, frame
from torpor_protocol.arrays import pack_i32
from torpor_protocol.requests import (
    AddRequest,
    ApiToCore,
    CoreToApi,
    EngineState,
    SamplingParams,
    ShutdownCommand,
    StepOutputs,
)

SOCKET_BYTES = 8 * 2**20
FIRST_TOKEN = 16  # above the special tokens of every model here


@dataclass(frozen=True)
class Job:
    """``batch`` requests at once, each with ``prompt`` random tokens and ``out`` to generate."""

    batch: int
    prompt: int
    out: int
    seed: int


@dataclass
class Run:
    """A job under way: when each step's tokens came, and how many."""

    job: Job
    started: float
    moments: list[float]
    counts: list[int]
    finished: int = 0

    @property
    def wall(self) -> float:
        return self.moments[-1] - self.started

    def step_ms(self) -> float:
        """Mean of the steps in which every request got a token; prompts are behind them."""
        full = [m for m, n in zip(self.moments, self.counts, strict=True) if n == self.job.batch]
        return 1000 * (full[-1] - full[0]) / (len(full) - 1) if len(full) > 1 else 0.0


class Feed(Inbox):
    """``next_job`` is asked when there is nothing to do; None ends the core. ``on_start`` and
    ``on_end`` are told of each job between two steps."""

    def __init__(
        self,
        vocab: int,
        next_job: Callable[[], Job | None],
        on_start: Callable[[Job], None],
        on_end: Callable[[Run], None],
    ) -> None:
        self._client, theirs = socket.socketpair()
        self._client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
        self._theirs = theirs
        super().__init__(FrameSocket(theirs))
        self._vocab = vocab
        self._next_job = next_job
        self._on_start = on_start
        self._on_end = on_end
        self._awake = False
        self._changing = False
        self._run: Run | None = None
        self._sink = bytearray(2**20)
        self._number = 0
        self.last_rows = 0

    def take(self, seconds: float, also: int | None = None) -> list[ApiToCore]:
        idle = self._run is None or self._run.finished == self._run.job.batch
        # A call to the workers from within the change takes messages while it waits.
        if self._awake and idle and not self._changing:
            self._changing = True
            self._change()
            self._changing = False
        return super().take(0.0, also)

    def send(self, message: CoreToApi) -> None:
        super().send(message)
        self._client.recv_into(self._sink)
        if isinstance(message, StepOutputs):
            self._note(message)
        elif isinstance(message, EngineState) and message.lifecycle == "Awake":
            self._awake = True

    def close(self) -> None:
        self._client.close()
        self._theirs.close()

    def _note(self, outputs: StepOutputs) -> None:
        self.last_rows = len(outputs.tokens) // 4
        if self._run is not None:
            self._run.moments.append(time.perf_counter())
            self._run.counts.append(self.last_rows)
            self._run.finished += len(outputs.finished)

    def _change(self) -> None:
        if self._run is not None:
            self._on_end(self._run)
            self._run = None
        job = self._next_job()
        if job is None:
            self._post(ShutdownCommand())
            self._awake = False
            return
        self._on_start(job)
        requests = self._requests(job)
        self._run = Run(job, time.perf_counter(), [], [])
        for request in requests:
            self._post(request)

    def _requests(self, job: Job) -> list[AddRequest]:
        rng = random.Random(job.seed)
        sampling = SamplingParams(max_tokens=job.out, seed=0, temperature=0.0, ignore_eos=True)
        made = []
        for _ in range(job.batch):
            self._number += 1
            tokens = [rng.randrange(FIRST_TOKEN, self._vocab) for _ in range(job.prompt)]
            made.append(AddRequest(self._number, pack_i32(tokens), sampling))
        return made

    def _post(self, message: ApiToCore) -> None:
        self._client.sendall(frame(msgspec.msgpack.encode(message)))
