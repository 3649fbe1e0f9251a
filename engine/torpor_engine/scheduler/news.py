"""A step's news for the clients: who has started, which tokens are whose."""

from __future__ import annotations

from torpor_engine.scheduler.batch import Flight
from torpor_engine.scheduler.outcome import Sampled
from torpor_engine.scheduler.rows import BoolArray
from torpor_engine.scheduler.state import SchedulerState
from torpor_protocol.arrays import I32Array, I64Array
from torpor_protocol.requests import Started, TokenLogprobs


def announce(state: SchedulerState, flight: Flight) -> list[Started]:
    """Requests of this step that their clients have not heard of; once in a request's life."""
    news = []
    for started in flight.started:
        entry = state.journal.get(started.id)
        if entry is not None and not entry.started:
            entry.started = True
            state.prompt_tokens += entry.prompt_len
            state.cached_tokens += started.cached_tokens
            news.append(started)
    return news


def handed_out(
    state: SchedulerState, sampled: Sampled, stopped: BoolArray
) -> tuple[I64Array, I32Array]:
    """Request ids and tokens, parallel; stop tokens are left out."""
    ids = state.rows.ids[sampled.rows]
    if stopped.any():
        return ids[~stopped], sampled.tokens[~stopped]
    return ids, sampled.tokens


def addressed(
    state: SchedulerState, sampled: Sampled, stopped: BoolArray, logprobs: list[TokenLogprobs]
) -> list[TokenLogprobs]:
    """The logprobs of the tokens that are handed out, with request ids in place of rows."""
    if not logprobs:
        return []
    ids = state.rows.ids[sampled.rows[~stopped]].tolist()
    request_in = dict(zip(sampled.rows[~stopped].tolist(), ids, strict=True))
    return [
        TokenLogprobs(
            row=request_in[item.row],
            token=item.token,
            logprob=item.logprob,
            rank=item.rank,
            top_ids=item.top_ids,
            top_logprobs=item.top_logprobs,
        )
        for item in logprobs
        if item.row in request_in
    ]
