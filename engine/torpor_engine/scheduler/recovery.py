"""What the scheduler does when the workers lose what they held: sleep, and loss of the group."""

from __future__ import annotations

from collections.abc import Iterable

from torpor_engine.journal import NO_ROW
from torpor_engine.scheduler.batch import Flight
from torpor_engine.scheduler.quarantine import LOSSES_TO_CONDEMN
from torpor_engine.scheduler.state import SchedulerState

POISON_MESSAGE = (
    f"The request was being computed each of the last {LOSSES_TO_CONDEMN} times that the workers "
    "failed, and produced nothing in between. Do not send it again; see the workers' log."
)


def unseat_all(state: SchedulerState) -> None:
    for entry in state.running_entries():
        state.unseat(entry, publish=False)


def give_up_poison(state: SchedulerState, flights: Iterable[Flight]) -> None:
    """Count the loss for every living request in the steps in flight, and end those that have been
    through too many."""
    batch = [
        int(state.rows.ids[row])
        for flight in flights
        for row, generation in zip(flight.rows.tolist(), flight.generations.tolist(), strict=True)
        if state.rows.generations[row] == generation
    ]
    unseat_all(state)
    for request_id in state.quarantine.lost(batch):
        entry = state.journal.get(request_id)
        if entry is not None:
            state.end(entry, POISON_MESSAGE)


def note_progress(state: SchedulerState, ids: Iterable[int]) -> None:
    """These have produced a token. A suspect that is cleared makes room for the next."""
    for request_id in ids:
        was_suspect = request_id in state.quarantine.suspects
        state.quarantine.forget(request_id)
        entry = state.journal.get(request_id)
        if was_suspect and state.quarantine.active and entry is not None and entry.row != NO_ROW:
            state.unseat(entry)


def start_afresh(state: SchedulerState, num_blocks: int) -> None:
    """Empty rows, empty cache. The workers have forgotten their rows too, so they are not told
    which ones were freed."""
    unseat_all(state)
    state.freed_rows.clear()
    state.kv.reset(num_blocks)
    for entry in list(state.journal):
        state.end_if_unfit(entry)
