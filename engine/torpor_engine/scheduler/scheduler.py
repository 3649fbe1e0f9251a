"""The scheduler's face: requests in, steps out, results in, tokens out.

A step is planned by ``running`` (rows that go on), ``admission`` (requests that join) and ``batch``
(the message); its result is taken in by ``outcome``. Steps may overlap: a row whose result is
awaited is not scheduled again before it has come.
"""

from __future__ import annotations

from collections.abc import Iterable

from torpor_engine.scheduler.admission import admit
from torpor_engine.scheduler.batch import Flight, launch
from torpor_engine.scheduler.news import addressed, announce, handed_out
from torpor_engine.scheduler.outcome import close_ended, judge, publish_prefilled, take
from torpor_engine.scheduler.recovery import (
    give_up_poison,
    note_progress,
    start_afresh,
    unseat_all,
)
from torpor_engine.scheduler.running import plan_running
from torpor_engine.scheduler.state import SchedulerState
from torpor_protocol.arrays import pack_i32, pack_i64
from torpor_protocol.config import EngineConfig
from torpor_protocol.errors import GroupLost
from torpor_protocol.requests import (
    AddRequest,
    EngineStats,
    Finished,
    FinishReason,
    StepOutputs,
)
from torpor_protocol.steps import ModelRunnerOutput, SchedulerOutput

PROMPT_TOO_LONG = (
    "The prompt has {} tokens and the model takes {}, of which one at least is to be generated. "
    "Shorten the prompt."
)


class Scheduler:
    """``num_blocks``: KV cache blocks of every rank, the null block among them.

    The core's loop is ``schedule``, run the step, ``update``. When the workers have lost what they
    held (sleep, a new group), the core calls ``preempt_all`` or ``record_loss`` as it happens and
    ``reset_cache`` when they are ready again, and schedules nothing in between."""

    def __init__(self, config: EngineConfig, num_blocks: int) -> None:
        self._state = SchedulerState(config, num_blocks)
        self._budget = config.scheduler.max_num_batched_tokens
        self._flights: dict[int, Flight] = {}
        self._steps = 0

    @property
    def num_running(self) -> int:
        """Requests that have a row."""
        return self._state.rows.num_running

    @property
    def num_waiting(self) -> int:
        """Requests in the queue."""
        return len(self._state.waiting)

    @property
    def num_held(self) -> int:
        """Those of them that are held back, because suspects are being run alone."""
        return self.num_waiting if self._state.quarantine.active else 0

    def has_unfinished(self) -> bool:
        """Whether there is anything to compute, or an end to be told."""
        return self.num_running > 0 or self.num_waiting > 0 or bool(self._state.ended)

    def add(self, request: AddRequest) -> None:
        """Accept a request. One that could never run ends at once: see ``take_finished``."""
        entry = self._state.enqueue(request)
        length = entry.prompt_len
        if length >= self._state.max_model_len:
            self._state.end(entry, PROMPT_TOO_LONG.format(length, self._state.max_model_len))
        else:
            self._state.end_if_unfit(entry)

    def abort(self, ids: Iterable[int]) -> list[Finished]:
        """End these requests; ids that have ended already are passed over."""
        known = (self._state.journal.get(request_id) for request_id in ids)
        return [self._state.close(entry, "abort") for entry in known if entry is not None]

    def abort_all(self, reason: FinishReason = "abort", message: str = "") -> list[Finished]:
        """End every request; ends that have not been told yet are among the result."""
        entries = list(self._state.journal)
        closed = [self._state.close(entry, reason, message) for entry in entries]
        return self.take_finished() + closed

    def take_finished(self) -> list[Finished]:
        """Requests that ended otherwise than by a step or an abort, once; ``update`` hands them
        out as well."""
        ended, self._state.ended = self._state.ended, []
        return ended

    def schedule(self) -> SchedulerOutput | None:
        """The next step, or None while there is nothing to do (or only steps in flight)."""
        state = self._state
        plan = plan_running(state, self._budget)
        admitted = admit(state, plan.budget_left)
        if not (len(plan.decodes) or plan.chunks or admitted):
            return None
        step = self._steps
        self._steps += 1
        output, self._flights[step] = launch(state, step, plan, admitted)
        return output

    def update(self, scheduled: SchedulerOutput, result: ModelRunnerOutput) -> StepOutputs:
        """Take in a step's result; returns its news, without ``stats``. Raises GroupLost when the
        result is not that of the step."""
        state = self._state
        flight = self._flights.get(scheduled.step)
        if flight is None or result.step != scheduled.step:
            raise GroupLost(
                "RankFailed", f"Step {scheduled.step} was answered by step {result.step}."
            )
        sampled = take(state, flight, result)
        del self._flights[scheduled.step]
        publish_prefilled(state, flight)
        started = announce(state, flight)
        verdict = judge(state, sampled)
        ids, tokens = handed_out(state, sampled, verdict.stopped)
        logprobs = addressed(state, sampled, verdict.stopped, result.logprobs)
        finished = close_ended(state, sampled, verdict) + self.take_finished()
        if state.quarantine.watching:
            note_progress(state, ids.tolist())
        state.generation_tokens += len(ids)
        return StepOutputs(pack_i64(ids), pack_i32(tokens), finished, started, logprobs)

    def preempt_all(self) -> None:
        """Put every running request back into the queue, in its old place and with its tokens:
        the workers are about to lose their KV cache."""
        unseat_all(self._state)

    def record_loss(self) -> None:
        """The group has been lost. Every running request goes back into the queue; those that have
        been in all of the last losses without a token in between end with an error."""
        flights = list(self._flights.values())
        self._flights.clear()
        give_up_poison(self._state, flights)

    def reset_cache(self, num_blocks: int) -> None:
        """The workers have, or will have, empty rows and an empty cache of this size: nothing that
        was there before is known any more. Requests that no longer fit end with an error."""
        self._flights.clear()
        start_afresh(self._state, num_blocks)

    def stats(self, held: int = 0, *, paused: bool = False) -> EngineStats:
        """``held``: requests that the core keeps from the queue and that wait all the same.
        ``paused``: no step runs, whatever room there is."""
        state = self._state
        waiting = self.num_waiting + held
        return EngineStats(
            running=self.num_running,
            waiting=waiting,
            deferred=waiting if paused else self.num_held + held,
            kv_cache_usage=state.kv.usage,
            prefix_queries=state.kv.queries,
            prefix_hits=state.kv.hits,
            preemptions=state.preemptions,
            steps=self._steps,
            prompt_tokens=state.prompt_tokens,
            cached_tokens=state.cached_tokens,
            generation_tokens=state.generation_tokens,
        )
