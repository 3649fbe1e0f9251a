"""Messages between the API process and the core process.

The API process has checked everything in them; the core trusts types and ranges but not timing: an
abort may name a request that has just ended.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from torpor_protocol.config import MemoryReport

FinishReason = Literal["stop", "length", "abort", "error"]
SleepMode = Literal["wait", "abort", "keep"]
SleepTag = Literal["weights", "kv_cache"]
WokenBy = Literal["", "request", "call"]
Lifecycle = Literal[
    "Starting", "Awake", "Draining", "Sleeping", "Asleep", "Waking", "Recovering", "Failed"
]


class SamplingParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How tokens are drawn. ``seed`` is always set (the engine assigns one if the client did not):
    a draw depends on (seed, position) alone, so it survives recovery and other batches.

    ``temperature`` 0 is greedy; ``top_k`` 0, ``top_p`` 1, ``min_p`` 0 and penalties 0/0/1 are off.
    ``logprobs``: number of alternatives per token, -1 = none wanted (0 = the chosen token only).
    """

    max_tokens: int
    seed: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[int, float] = {}
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
    logprobs: int = -1


class AddRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="add"):
    """``id``: chosen by the API process, never used twice. ``prompt``: int32 array, not empty."""

    id: int
    prompt: bytes
    sampling: SamplingParams
    priority: int = 0
    cache_salt: str = ""


class AbortRequests(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="abort"):
    ids: list[int]


class SleepCommand(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="sleep"):
    call: int
    level: int = 1
    mode: SleepMode = "wait"


class WakeCommand(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="wake"):
    """``tags`` empty = everything."""

    call: int
    tags: tuple[SleepTag, ...] = ()


class DrainCommand(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="drain"):
    """Answered when no request is left; requests that come meanwhile are refused by the API."""

    call: int


class OnCallCommand(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="on_call"):
    """Whether a request may come to this replica, and so wake it, while it sleeps."""

    call: int
    value: bool


class ShutdownCommand(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="shutdown"):
    pass


ApiToCore = (
    AddRequest
    | AbortRequests
    | SleepCommand
    | WakeCommand
    | DrainCommand
    | OnCallCommand
    | ShutdownCommand
)


class TokenLogprobs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Log probabilities (natural) of one sampled token.

    ``row`` is the runner's row on the worker wire and the request id towards the API process;
    ``rank`` counts from 1; ``top_ids`` is an int32 array, best first.
    """

    row: int
    token: int
    logprob: float
    rank: int
    top_ids: bytes
    top_logprobs: list[float]


class Finished(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``stop_token`` is the token that ended it (eos or a stop token id), else -1. It is not among
    the tokens handed out. ``message`` explains reason ``error``."""

    id: int
    reason: FinishReason
    stop_token: int = -1
    message: str = ""


class Started(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """First scheduled: ``cached_tokens`` of its prompt came from the prefix cache."""

    id: int
    cached_tokens: int


class EngineStats(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Counters are totals since the core started; ``kv_cache_usage`` is 0..1. ``deferred``: those
    of ``waiting`` that room in the batch would not help: the replica sleeps, wakes or recovers, or
    others are being run alone. ``cached_tokens``: those of ``prompt_tokens`` that the prefix cache
    had."""

    running: int = 0
    waiting: int = 0
    deferred: int = 0
    kv_cache_usage: float = 0.0
    prefix_queries: int = 0
    prefix_hits: int = 0
    preemptions: int = 0
    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generation_tokens: int = 0


class StepOutputs(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="outputs"):
    """One step's news: ``ids`` int64 and ``tokens`` int32 run in parallel, one token per entry."""

    ids: bytes
    tokens: bytes
    finished: list[Finished] = []
    started: list[Started] = []
    logprobs: list[TokenLogprobs] = []
    stats: EngineStats | None = None
    step_seconds: float = 0.0


class CommandReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="reply"):
    """``error`` empty = done. ``seconds``: how long it took."""

    call: int
    error: str = ""
    fix: str = ""
    seconds: float = 0.0
    memory: list[MemoryReport] = []


class LoadProgress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Over all ranks: tensors and bytes done and wanted, seconds since loading began."""

    tensors_done: int
    tensors_total: int
    bytes_done: int
    bytes_total: int
    seconds: float


class RankState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rank: int
    pid: int
    state: str
    memory: MemoryReport | None = None


class GroupEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A loss of the group: reason, sentence, unix time, and how long until tokens flowed again
    (seconds; -1 while it has not recovered)."""

    group: str
    reason: str
    message: str
    time: float
    recover_seconds: float = -1.0


class EngineState(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="state"):
    """What ``GET /state`` shows. ``asleep``: tags that are asleep; ``level`` 0 when awake.
    ``on_call``: while asleep, requests are taken and wake it. ``woken_by``: why it is awake after a
    sleep, "" when it never slept. ``waiting_for``: which worker pods are missing, "" when none is.
    ``wire_rejected``: frames and connections that the worker wire refused, by reason."""

    lifecycle: Lifecycle
    level: int = 0
    asleep: tuple[SleepTag, ...] = ()
    group: str = ""
    executor: str = ""
    runner: str = ""
    reason: str = ""
    message: str = ""
    ranks: list[RankState] = []
    load: LoadProgress | None = None
    kv_blocks: int = 0
    block_size: int = 0
    max_model_len: int = 0
    restarts: int = 0
    last_loss: GroupEvent | None = None
    last_sleep_seconds: float = -1.0
    last_wake_seconds: float = -1.0
    wire_rejected: dict[str, int] = {}
    on_call: bool = True
    woken_by: WokenBy = ""
    waiting_for: str = ""


CoreToApi = StepOutputs | CommandReply | EngineState
