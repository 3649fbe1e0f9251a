"""Admit waiting requests: the first in the queue, as long as rows, budget and blocks suffice.

Nobody is admitted past the head of the queue, so nobody starves. A request is admitted only if all
it has fits into the cache, and a block is left for each running row, so that everyone gets at least
a block further before anyone is preempted.
"""

from __future__ import annotations

from typing import NamedTuple

from torpor_engine.journal import JournalEntry
from torpor_engine.scheduler.state import SchedulerState
from torpor_protocol.arrays import pack_i32
from torpor_protocol.limits import MAX_FRAME_BYTES
from torpor_protocol.requests import Started
from torpor_protocol.steps import NewRequest

# New requests bring whole prompts; what is left of a frame is ample for the rest of a step.
MAX_NEW_BYTES = MAX_FRAME_BYTES // 2


class Admitted(NamedTuple):
    """``num_tokens``: what the row computes in this step."""

    message: NewRequest
    num_tokens: int
    started: Started


def admit(state: SchedulerState, budget: int) -> list[Admitted]:
    """Move requests from the queue into rows and say what each computes first."""
    admitted: list[Admitted] = []
    size = 0
    while budget > 0 and state.rows.num_free and (entry := _next(state)) is not None:
        tokens = state.journal.tokens_of(entry)
        size += tokens.nbytes + tokens.nbytes // state.kv.block_size
        if admitted and size > MAX_NEW_BYTES:
            break
        num_cached, cached = state.kv.lookup(tokens, entry.cache_salt, entry.block_hashes)
        num_tokens = _first_chunk(state, len(tokens) - num_cached, budget)
        if num_tokens == 0 or not state.kv.can_allocate(
            len(tokens), cached, spare=state.rows.num_running
        ):
            break
        admitted.append(_seat(state, entry, num_cached, cached, num_tokens))
        budget -= num_tokens
    return admitted


def _next(state: SchedulerState) -> JournalEntry | None:
    """The head of the queue; while there are suspects, the first of them, and nobody beside it."""
    if not state.quarantine.active:
        return state.waiting.peek()
    if state.rows.num_running:
        return None
    suspects = [state.journal.get(suspect) for suspect in state.quarantine.suspects]
    known = [entry for entry in suspects if entry is not None]
    return min(known, key=lambda entry: (entry.priority, entry.arrival))


def _first_chunk(state: SchedulerState, wanted: int, budget: int) -> int:
    """Without chunked prefill a prompt waits until it fits whole; one that is longer than any step
    is split all the same, because it would wait for ever."""
    splits = state.limits.chunked_prefill or wanted > state.limits.max_num_batched_tokens
    return min(wanted, budget) if splits or wanted <= budget else 0


def _seat(
    state: SchedulerState,
    entry: JournalEntry,
    num_cached: int,
    cached: list[int],
    num_tokens: int,
) -> Admitted:
    tokens = pack_i32(state.journal.tokens_of(entry))
    blocks = state.seat(entry, num_cached, cached)
    message = NewRequest(
        row=entry.row,
        generation=int(state.rows.generations[entry.row]),
        prompt_len=entry.prompt_len,
        num_computed=num_cached,
        tokens=tokens,
        blocks=pack_i32(blocks),
        sampling=entry.sampling,
    )
    return Admitted(message, num_tokens, Started(entry.id, num_cached))
