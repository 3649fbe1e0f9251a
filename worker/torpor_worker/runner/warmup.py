"""Steps of made-up requests through the real path: to measure the largest batch, and to have
everything compiled, packed and allocated before the first request.

Every rank runs the same steps, because they meet in collectives.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from torpor_protocol.arrays import EMPTY, I32Array, pack_i32
from torpor_protocol.requests import SamplingParams
from torpor_protocol.steps import NewRequest, SchedulerOutput
from torpor_worker.runner.interface import Runner
from torpor_worker.runner.states import RowLimits

GENERATION = 1
TOKEN = 0
GREEDY = SamplingParams(max_tokens=8, seed=0, temperature=0.0)
# Every stage of the sampler, in two rows: with top-k and without.
FEATURES = SamplingParams(
    max_tokens=8,
    seed=1,
    temperature=0.9,
    top_k=8,
    top_p=0.9,
    min_p=0.01,
    presence_penalty=0.1,
    frequency_penalty=0.1,
    repetition_penalty=1.1,
    logit_bias={TOKEN: 0.5},
    min_tokens=2,
    logprobs=2,
)
NUCLEUS = SamplingParams(max_tokens=8, seed=2, temperature=0.9, top_p=0.9, min_p=0.01)
SAMPLINGS = (GREEDY, FEATURES, NUCLEUS)
DECODE_STEPS = 2
# A CPU's cache is sized by what is free, not by the peak of a step, so that the profile only has
# to tell how fast tokens are: a part of the largest batch does, and start-up is seconds shorter.
CPU_PROFILE_TOKENS = 256


def profile_limits(limits: RowLimits, device_type: str) -> RowLimits:
    """The limits under which the profile's batch is made."""
    if device_type != "cpu":
        return limits
    tokens = min(limits.max_num_batched_tokens, CPU_PROFILE_TOKENS)
    return replace(limits, max_num_batched_tokens=tokens)


def largest_batch(limits: RowLimits) -> I32Array:
    """Prompt lengths by row: as many tokens as a step may hold, over as many rows."""
    rows = min(limits.max_num_seqs, limits.max_num_batched_tokens)
    share, rest = divmod(limits.max_num_batched_tokens, rows)
    lengths = np.full(rows, share, np.int32)
    lengths[-rest or rows :] += 1
    return np.minimum(lengths, limits.max_model_len)


def blocks_for(lengths: I32Array, limits: RowLimits) -> int:
    """Blocks that these prompts and a null block take."""
    return 1 + int((-(-lengths // limits.block_size)).sum())


def run_largest_batch(runner: Runner, limits: RowLimits) -> None:
    """One step, on a runner that is not used for anything else."""
    lengths = largest_batch(limits)
    run_step(runner, _prompts(lengths, [GREEDY] * len(lengths), limits))


def warm_up(runner: Runner, limits: RowLimits, cache_blocks: int) -> None:
    """Prompts, then decodes, with every sampling feature; leaves the runner empty. A request takes
    one block, so that it fits whatever the cache holds."""
    longest = min(limits.block_size, limits.max_model_len) - DECODE_STEPS
    count = min(limits.max_num_seqs, cache_blocks - 1, len(SAMPLINGS))
    length = max(1, min(longest, limits.max_num_batched_tokens // max(count, 1)))
    lengths = np.full(count, length, np.int32)
    run_step(runner, _prompts(lengths, list(SAMPLINGS[:count]), limits))
    room = min(limits.block_size, limits.max_model_len) - length
    for _ in range(min(DECODE_STEPS, room)):
        run_step(runner, _step(np.ones(count, np.int32)))
    runner.reset()


def run_step(runner: Runner, step: SchedulerOutput) -> None:
    runner.execute_model(step)
    runner.sample_tokens()


def _prompts(
    lengths: I32Array, samplings: list[SamplingParams], limits: RowLimits
) -> SchedulerOutput:
    """A step in which these requests join and compute all they have. Rows of one token first."""
    new, first = [], 1
    for row, (length, sampling) in enumerate(zip(lengths.tolist(), samplings, strict=True)):
        count = -(-length // limits.block_size)
        new.append(
            NewRequest(
                row=row,
                generation=GENERATION,
                prompt_len=length,
                num_computed=0,
                tokens=pack_i32(np.full(length, TOKEN, np.int32)),
                blocks=pack_i32(np.arange(first, first + count, dtype=np.int32)),
                sampling=sampling,
            )
        )
        first += count
    return _step(lengths, new)


def _step(counts: I32Array, new: list[NewRequest] | None = None) -> SchedulerOutput:
    rows = np.arange(len(counts), dtype=np.int32)
    return SchedulerOutput(
        step=0,
        new=new or [],
        rows=pack_i32(rows),
        generations=pack_i32(np.full(len(counts), GENERATION, np.int32)),
        num_tokens=pack_i32(counts),
        total_tokens=int(counts.sum()),
        block_rows=EMPTY,
        block_counts=EMPTY,
        block_ids=EMPTY,
        finished=EMPTY,
    )
