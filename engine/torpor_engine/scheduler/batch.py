"""Put a step together: batch order, the message for the workers, and what is to come back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torpor_engine.scheduler.admission import Admitted
from torpor_engine.scheduler.rows import BoolArray
from torpor_engine.scheduler.running import RunningPlan
from torpor_engine.scheduler.state import SchedulerState
from torpor_protocol.arrays import EMPTY, I32Array, pack_i32
from torpor_protocol.requests import Started
from torpor_protocol.steps import SchedulerOutput


@dataclass(frozen=True, slots=True)
class Flight:
    """A step whose result is awaited. ``rows``/``generations`` int32, parallel, in batch order;
    ``sampling`` bool, parallel: the rows that sample. ``prefilled``: (row, generation) of those
    that compute a prompt. ``started``: what to tell the clients of those that join."""

    rows: I32Array
    generations: I32Array
    sampling: BoolArray
    prefilled: list[tuple[int, int]]
    started: list[Started]


def launch(
    state: SchedulerState, step: int, plan: RunningPlan, admitted: list[Admitted]
) -> tuple[SchedulerOutput, Flight]:
    """Count the step's tokens as computed and describe it; the batch is not empty."""
    rows, counts = _batch_order(plan, admitted)
    generations = state.rows.generations[rows]
    computed = state.rows.computed[rows] + counts
    state.rows.computed[rows] = computed
    state.rows.in_flight[rows] = True
    grew = len(plan.grown) > 0
    output = SchedulerOutput(
        step=step,
        new=[item.message for item in admitted],
        rows=pack_i32(rows),
        generations=pack_i32(generations),
        num_tokens=pack_i32(counts),
        total_tokens=int(counts.sum()),
        block_rows=pack_i32(plan.grown) if grew else EMPTY,
        block_counts=pack_i32(np.ones_like(plan.grown)) if grew else EMPTY,
        block_ids=pack_i32(plan.blocks) if grew else EMPTY,
        finished=pack_i32(sorted(state.freed_rows)) if state.freed_rows else EMPTY,
    )
    state.freed_rows = []
    flight = Flight(
        rows,
        generations,
        computed == state.journal.lengths[rows],
        _prefilled(state, plan, admitted),
        [item.started for item in admitted],
    )
    return output, flight


def _prefilled(
    state: SchedulerState, plan: RunningPlan, admitted: list[Admitted]
) -> list[tuple[int, int]]:
    rows = [row for row, _ in plan.chunks] + [item.message.row for item in admitted]
    return [(row, int(state.rows.generations[row])) for row in rows]


def _batch_order(plan: RunningPlan, admitted: list[Admitted]) -> tuple[I32Array, I32Array]:
    """Rows and their token counts: first those that compute one token, whatever the token is."""
    if not plan.chunks and not admitted:
        return plan.decodes, np.ones_like(plan.decodes)
    more = [*plan.chunks, *((item.message.row, item.num_tokens) for item in admitted)]
    more.sort(key=lambda item: item[1] > 1)
    tail = np.array(more, np.int32)
    rows = np.concatenate((plan.decodes, tail[:, 0]))
    counts = np.concatenate((np.ones_like(plan.decodes), tail[:, 1]))
    return rows, counts
