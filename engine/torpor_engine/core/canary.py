"""The canary: a fixed prompt whose greedy tokens tell whether woken weights are the right ones.

Recorded when the group first became ready and compared after every wake. It runs on an engine that
has no request on its rows, outside the scheduler, and leaves the rows free.
"""

from __future__ import annotations

import numpy as np

from torpor_engine.executor import Executor
from torpor_protocol.arrays import EMPTY, pack_i32, unpack_i32
from torpor_protocol.config import EngineConfig
from torpor_protocol.requests import SamplingParams
from torpor_protocol.steps import NewRequest, SchedulerOutput

FIRST_GENERATION = 1


def run_canary(executor: Executor, config: EngineConfig) -> tuple[int, ...]:
    """Greedy tokens of the canary prompt. Raises GroupLost."""
    wanted = min(config.wake.canary_tokens, config.model.max_model_len - 1)
    prompt = config.wake.canary_prompt[: config.model.max_model_len - wanted]
    prompt = prompt[: config.scheduler.max_num_batched_tokens]
    length = len(prompt)
    blocks = -(-(length + wanted) // config.cache.block_size)
    request = NewRequest(
        row=0,
        generation=FIRST_GENERATION,
        prompt_len=length,
        num_computed=0,
        tokens=pack_i32(list(prompt)),
        blocks=pack_i32(np.arange(1, blocks + 1, dtype=np.int32)),
        sampling=SamplingParams(max_tokens=wanted, seed=0, temperature=0.0, ignore_eos=True),
    )
    tokens: list[int] = []
    for step in range(wanted):
        output = executor.step(_step(step, request if step == 0 else None, length))
        tokens += unpack_i32(output.tokens).tolist()
    executor.reset()
    return tuple(tokens)


def _step(step: int, request: NewRequest | None, length: int) -> SchedulerOutput:
    count = length if request else 1
    return SchedulerOutput(
        step=step,
        new=[request] if request else [],
        rows=pack_i32([0]),
        generations=pack_i32([FIRST_GENERATION]),
        num_tokens=pack_i32([count]),
        total_tokens=count,
        block_rows=EMPTY,
        block_counts=EMPTY,
        block_ids=EMPTY,
        finished=EMPTY,
    )
