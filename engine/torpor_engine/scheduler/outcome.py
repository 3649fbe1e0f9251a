"""Take a step's tokens in: check them, append them, and end the requests that are complete."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from torpor_engine.scheduler.batch import Flight
from torpor_engine.scheduler.rows import BoolArray
from torpor_engine.scheduler.state import SchedulerState
from torpor_protocol.arrays import I32Array, unpack_i32
from torpor_protocol.errors import GroupLost
from torpor_protocol.requests import Finished
from torpor_protocol.steps import ModelRunnerOutput


class Sampled(NamedTuple):
    """Parallel: a token for each row whose request is still the one that was scheduled."""

    rows: I32Array
    tokens: I32Array


class Verdict(NamedTuple):
    """Parallel to the sampled rows. A stop token is not handed out."""

    stopped: BoolArray
    full: BoolArray
    unfit: BoolArray


def take(state: SchedulerState, flight: Flight, output: ModelRunnerOutput) -> Sampled:
    """The tokens that belong to living requests. Raises GroupLost when the workers answered for
    other rows than were asked: their state cannot be trusted, so the group is formed anew."""
    rows, tokens = unpack_i32(output.rows), unpack_i32(output.tokens)
    expected = flight.rows[flight.sampling]
    if len(tokens) != len(rows) or not np.array_equal(rows, expected):
        raise GroupLost(
            "RankFailed",
            f"Step {output.step} came back with {len(tokens)} tokens for {len(rows)} rows; "
            f"{len(expected)} were expected.",
        )
    alive = state.rows.generations[flight.rows] == flight.generations
    if alive.all():
        state.rows.in_flight[flight.rows] = False
        return Sampled(rows, tokens)
    state.rows.in_flight[flight.rows[alive]] = False
    kept = alive[flight.sampling]
    return Sampled(rows[kept], tokens[kept])


def publish_prefilled(state: SchedulerState, flight: Flight) -> None:
    """Prompts that are being computed can be shared as far as they have come."""
    for row, generation in flight.prefilled:
        if state.rows.generations[row] == generation:
            state.publish(state.entry_in(row))


def judge(state: SchedulerState, sampled: Sampled) -> Verdict:
    """Append the tokens and apply the rules by which requests end."""
    rows, tokens = sampled
    table, lengths = state.rows, state.journal.lengths
    stopped = (table.stops[rows] == tokens[:, None]).any(axis=1)
    if stopped.any():
        stopped &= lengths[rows] >= table.stop_from[rows]
    state.journal.append(rows, tokens)
    after = lengths[rows]
    return Verdict(stopped, after >= table.limits[rows], after > state.kv.max_tokens)


def close_ended(state: SchedulerState, sampled: Sampled, verdict: Verdict) -> list[Finished]:
    """End what is to end; a stop token comes before the limits, and those before a full cache."""
    stopped, full, unfit = verdict
    finished = []
    for index in np.flatnonzero(stopped | full | unfit).tolist():
        entry = state.entry_in(int(sampled.rows[index]))
        if stopped[index]:
            finished.append(state.close(entry, "stop", stop=int(sampled.tokens[index])))
        elif full[index]:
            finished.append(state.close(entry, "length"))
        else:
            state.end_if_unfit(entry)
    return finished
