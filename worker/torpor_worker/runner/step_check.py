"""Check a step against the rows before anything is changed: all or nothing.

The scheduler owns the rows; this is where a rank notices that it and the scheduler disagree (a lost
message, an old generation) before it writes one request's tokens into another's row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from torpor_protocol.arrays import I32Array, I64Array, unpack_i32
from torpor_protocol.steps import NewRequest, SchedulerOutput
from torpor_worker.runner.errors import StepRefused
from torpor_worker.runner.states import BoolArray, RequestStates


class Step(NamedTuple):
    """A ``SchedulerOutput`` with its arrays decoded."""

    step: int
    new: list[NewRequest]
    rows: I32Array
    num_tokens: I32Array
    total_tokens: int
    block_rows: I32Array
    block_counts: I32Array
    block_ids: I32Array
    finished: I32Array


class _After:
    """The rows as they will be when the step's differences are in: copies, if there are any."""

    def __init__(self, states: RequestStates, changed: bool) -> None:
        self.active = states.active.copy() if changed else states.active
        self.generation = states.generation.copy() if changed else states.generation
        self.total_len = states.total_len.copy() if changed else states.total_len
        self.num_computed = states.num_computed.copy() if changed else states.num_computed
        self.num_blocks = states.num_blocks.copy() if changed else states.num_blocks


def check_step(output: SchedulerOutput, states: RequestStates) -> Step:
    """Decode a step. Raises StepRefused, or WireError for an array of a broken length."""
    step = Step(
        output.step,
        output.new,
        unpack_i32(output.rows),
        unpack_i32(output.num_tokens),
        output.total_tokens,
        unpack_i32(output.block_rows),
        unpack_i32(output.block_counts),
        unpack_i32(output.block_ids),
        unpack_i32(output.finished),
    )
    changed = bool(step.new or output.finished or output.block_rows or output.block_ids)
    after = _After(states, changed)
    if changed:
        _check_finished(step, after)
        for request in step.new:
            _check_new(request, after, states)
        _check_blocks(step, after, states)
    _check_scheduled(step, unpack_i32(output.generations), after, states)
    return step


def _refuse_if(condition: bool, cause: str) -> None:
    if condition:
        raise StepRefused(cause)


def _first(rows: I32Array, wrong: BoolArray) -> int:
    return int(rows[np.argmax(wrong)])


def _in_range(rows: I32Array, after: _After) -> None:
    wrong = (rows < 0) | (rows >= len(after.active))
    if wrong.any():
        raise StepRefused(f"There is no row {_first(rows, wrong)}.")


def _active(rows: I32Array, after: _After, what: str) -> None:
    _in_range(rows, after)
    wrong = ~after.active[rows]
    if wrong.any():
        raise StepRefused(f"Row {_first(rows, wrong)} is free, but the step {what} it.")


def _check_finished(step: Step, after: _After) -> None:
    rows = step.finished
    if not len(rows):
        return
    _refuse_if(bool((rows[1:] <= rows[:-1]).any()), "Finished rows are not in ascending order.")
    _active(rows, after, "frees")
    after.active[rows] = False


def _check_new(request: NewRequest, after: _After, states: RequestStates) -> None:
    row, limits = request.row, states.limits
    _in_range(np.array([row], np.int32), after)
    _refuse_if(bool(after.active[row]), f"Row {row} is taken, but a new request is put into it.")
    seen = int(after.generation[row])
    _refuse_if(
        request.generation <= seen,
        f"Row {row} is at generation {seen}; a request came with {request.generation}.",
    )
    tokens, blocks = unpack_i32(request.tokens), unpack_i32(request.blocks)
    _refuse_if(
        not 1 <= request.prompt_len <= len(tokens) <= limits.max_model_len
        or not 0 <= request.num_computed < len(tokens),
        f"The request for row {row} has {len(tokens)} tokens, {request.prompt_len} of them the "
        f"prompt and {request.num_computed} computed; that is not possible.",
    )
    _refuse_if(
        bool(tokens.min() < 0 or tokens.max() >= limits.vocab_size),
        f"The request for row {row} has a token outside the vocabulary.",
    )
    _check_block_ids(blocks, states)
    _refuse_if(len(blocks) > limits.max_blocks, f"Row {row} has more blocks than it can hold.")
    after.active[row] = True
    after.generation[row] = request.generation
    after.total_len[row] = len(tokens)
    after.num_computed[row] = request.num_computed
    after.num_blocks[row] = len(blocks)


def _check_block_ids(blocks: I32Array, states: RequestStates) -> None:
    last = states.cache_blocks - 1
    _refuse_if(
        len(blocks) > 0 and bool(blocks.min() < 1 or blocks.max() > last),
        f"The step names a block outside 1..{last}.",
    )


def _check_blocks(step: Step, after: _After, states: RequestStates) -> None:
    rows, counts = step.block_rows, step.block_counts
    if not len(rows) and not len(step.block_ids):
        return
    _refuse_if(
        len(rows) != len(counts)
        or bool((counts < 0).any())
        or int(counts.sum()) != len(step.block_ids),
        "Rows, counts and ids of the appended blocks do not fit together.",
    )
    _active(rows, after, "appends blocks to")
    _check_block_ids(step.block_ids, states)
    np.add.at(after.num_blocks, rows, counts)
    wrong = after.num_blocks[rows] > states.limits.max_blocks
    _refuse_if(bool(wrong.any()), f"Row {_first(rows, wrong)} has more blocks than it can hold.")


def _check_scheduled(
    step: Step, generations: I32Array, after: _After, states: RequestStates
) -> None:
    rows, counts = step.rows, step.num_tokens
    fits = len(rows) == len(counts) == len(generations) and counts.sum() == step.total_tokens
    if not fits or step.total_tokens > states.limits.max_num_batched_tokens:
        raise StepRefused(
            f"Step {step.step} counts {step.total_tokens} tokens; its arrays do not agree with "
            "that, or with what a step may hold."
        )
    if not len(rows):
        return
    _active(rows, after, "schedules")
    stale = after.generation[rows] != generations
    if stale.any():
        row = _first(rows, stale)
        raise StepRefused(
            f"Row {row} is at generation {after.generation[row]}, but the step schedules "
            f"generation {generations[np.argmax(stale)]}."
        )
    _refuse_if(bool(np.bincount(rows).max() > 1), "The step schedules a row twice.")
    _check_counts(step, after, states)


def _check_counts(step: Step, after: _After, states: RequestStates) -> None:
    rows, counts = step.rows, step.num_tokens
    single = counts == 1
    if counts.min() < 1:
        raise StepRefused("The step schedules a row without a token.")
    if (single[1:] & ~single[:-1]).any():
        raise StepRefused("Rows that compute one token do not come first in the step.")
    ends: I64Array = after.num_computed[rows] + counts
    wrong = ends > after.total_len[rows]
    if wrong.any():
        raise StepRefused(f"Row {_first(rows, wrong)} has fewer tokens than scheduled.")
    wrong = ends > after.num_blocks[rows] * states.limits.block_size
    if wrong.any():
        raise StepRefused(f"Row {_first(rows, wrong)} has no block for its tokens.")
