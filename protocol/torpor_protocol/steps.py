"""One step between scheduler and runner: differences only.

A request's row is assigned by the scheduler (its slot in the engine's arrays is its slot in every
rank's state tensors, so ranks cannot disagree) together with the row's generation: a message about
an older generation of a row is refused by the runner. The size of a step's message does not depend
on the prompt lengths of requests already known.
"""

from __future__ import annotations

import msgspec

from torpor_protocol.requests import SamplingParams, TokenLogprobs


class NewRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything about a request, once. ``tokens`` int32: prompt, and after a preemption or a
    recovery also the output so far; the first ``prompt_len`` are the prompt. ``num_computed`` of
    them are in the KV cache already (prefix cache). ``blocks`` int32: its block table so far."""

    row: int
    generation: int
    prompt_len: int
    num_computed: int
    tokens: bytes
    blocks: bytes
    sampling: SamplingParams


class SchedulerOutput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to compute in one step.

    ``rows``/``generations``/``num_tokens`` (int32, parallel): the scheduled rows in batch order,
    decodes (one token) first, and how many tokens each computes. A row samples when its computed
    tokens reach the tokens it has. ``block_rows``/``block_counts`` (int32, parallel) and
    ``block_ids`` (int32, concatenated): blocks appended to known rows in this step.
    ``finished`` (int32): rows freed before this step (ended or preempted), in ascending order.
    """

    step: int
    new: list[NewRequest]
    rows: bytes
    generations: bytes
    num_tokens: bytes
    total_tokens: int
    block_rows: bytes
    block_counts: bytes
    block_ids: bytes
    finished: bytes


class ModelRunnerOutput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``rows``/``tokens`` (int32, parallel): the rows that sampled, in batch order.
    ``logprobs`` holds an entry for each row that asked. ``step`` echoes the step."""

    step: int
    rows: bytes
    tokens: bytes
    logprobs: list[TokenLogprobs] = []
