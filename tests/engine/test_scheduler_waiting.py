"""The waiting queue: order, removal, and memory in proportion."""

from __future__ import annotations

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from scheduler_driver import request
from torpor_engine.journal import JournalEntry
from torpor_engine.scheduler.waiting import WaitingQueue


def entry(arrival: int, priority: int = 0) -> JournalEntry:
    return JournalEntry(request(arrival, [1], priority=priority), arrival)


@given(st.lists(st.tuples(st.integers(-2, 2), st.sampled_from(["push", "pop", "remove", "back"]))))
def test_the_head_is_the_first_by_priority_then_arrival(moves: list[tuple[int, str]]) -> None:
    queue, alive, gone, arrivals = WaitingQueue(), [], [], count()
    for priority, move in moves:
        if move == "push":
            alive.append(entry(next(arrivals), priority))
            queue.push(alive[-1])
        elif move == "back" and gone:
            alive.append(gone.pop(0))
            queue.push(alive[-1])
        elif move in ("pop", "remove") and alive:
            chosen = queue.peek() if move == "pop" else alive[len(alive) // 2]
            assert chosen is not None
            queue.remove(chosen)
            alive.remove(chosen)
            gone.append(chosen)
        wanted = min(alive, key=lambda e: (e.priority, e.arrival), default=None)
        assert queue.peek() is wanted
        assert len(queue) == len(alive)


def test_removed_requests_do_not_pile_up() -> None:
    queue = WaitingQueue()
    queue.push(entry(0, priority=-1))
    for arrival in range(1, 5_000):
        queue.push(late := entry(arrival))
        queue.remove(late)
    assert len(queue) == 1
    assert len(queue._heap) < 200
