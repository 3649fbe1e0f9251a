"""Plan the running rows of a step: decodes first, then the chunks of prompts that have begun.

The steady state, in which every row decodes, is a handful of array operations; only rows that cross
a block boundary cost more, and those together one allocation.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from torpor_engine.scheduler.state import SchedulerState
from torpor_protocol.arrays import I32Array

NO_ROWS: I32Array = np.zeros(0, np.int32)


class RunningPlan(NamedTuple):
    """``decodes``: rows that compute one token. ``chunks``: (row, tokens) of those that compute
    more. ``grown``/``blocks`` (parallel): a fresh block for each row that crossed a boundary."""

    decodes: I32Array
    chunks: list[tuple[int, int]]
    grown: I32Array
    blocks: I32Array
    budget_left: int


def plan_running(state: SchedulerState, budget: int) -> RunningPlan:
    """Spend the budget on rows that are not in flight, preempting where blocks run out."""
    rows = state.rows.order
    busy = state.rows.in_flight[rows]
    if busy.any():
        rows = rows[~busy]
    pending = state.journal.lengths[rows] - state.rows.computed[rows]
    single = pending == 1
    decodes = rows if single.all() else rows[single]
    if len(decodes) > budget:
        decodes = decodes[:budget]
    decodes, grown, preempted = _make_room(state, decodes)
    blocks = state.kv.grow(grown) if len(grown) else NO_ROWS
    chunks: list[tuple[int, int]] = []
    budget -= len(decodes)
    if not single.all():
        chunks, budget = _plan_chunks(rows[~single], pending[~single], budget, preempted)
    return RunningPlan(decodes, chunks, grown, blocks, budget)


def _make_room(state: SchedulerState, decodes: I32Array) -> tuple[I32Array, I32Array, set[int]]:
    """The decodes that remain, those of them that need a block, and the rows that were preempted:
    always the one that would come last. The first can always go on, because no request is kept
    that does not fit alone."""
    grown = decodes[state.rows.computed[decodes] >= state.kv.capacity[decodes]]
    preempted: set[int] = set()
    while len(grown) > state.kv.available:
        victim = int(state.rows.order[-1])
        state.preempt(victim)
        preempted.add(victim)
        decodes = decodes[decodes != victim]
        grown = grown[grown != victim]
    return decodes, grown, preempted


def _plan_chunks(
    rows: I32Array, pending: I32Array, budget: int, preempted: set[int]
) -> tuple[list[tuple[int, int]], int]:
    """Their blocks they have since they were admitted."""
    chunks = []
    for row, wanted in zip(rows.tolist(), pending.tolist(), strict=True):
        if budget == 0:
            break
        if row not in preempted:
            chunks.append((row, min(wanted, budget)))
            budget -= chunks[-1][1]
    return chunks, budget
