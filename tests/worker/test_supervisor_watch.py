"""Which states of a process count as a stall, and for how long: on made-up observations."""

from __future__ import annotations

import os
import time

from torpor_worker.processes import GONE, Sighting, sight
from torpor_worker.watch import Stall, StallWatch


def seen(state: str, switches: int = 5) -> dict[int, Sighting]:
    return {7: Sighting(state, switches)}


def test_a_stopped_process_is_told_once_after_a_second() -> None:
    watch = StallWatch()
    assert watch.look(seen("T"), 10.0) == []
    assert watch.look(seen("T"), 11.0) == []
    assert watch.look(seen("T"), 11.5) == [Stall(7, "T", 1.5)]
    assert watch.look(seen("T"), 20.0) == []


def test_a_traced_process_counts_as_stopped() -> None:
    watch = StallWatch()
    watch.look(seen("t"), 0.0)
    assert watch.look(seen("t"), 1.5) == [Stall(7, "t", 1.5)]


def test_waiting_for_a_disk_takes_longer_to_be_a_stall() -> None:
    watch = StallWatch()
    watch.look(seen("D"), 0.0)
    assert watch.look(seen("D"), 10.0) == []
    assert watch.look(seen("D"), 10.5) == [Stall(7, "D", 10.5)]


def test_a_slow_disk_is_no_stall_as_long_as_it_answers() -> None:
    watch = StallWatch()
    for now in range(100):
        assert watch.look(seen("D", switches=now // 10), now) == []


def test_running_and_sleeping_are_no_stalls() -> None:
    watch = StallWatch()
    for now in range(100):
        states = enumerate(["R", "S", "Z", GONE])
        assert watch.look({pid: Sighting(state, 0) for pid, state in states}, now) == []


def test_a_process_that_went_on_and_stops_again_is_told_again() -> None:
    watch = StallWatch()
    watch.look(seen("T"), 0.0)
    assert len(watch.look(seen("T"), 2.0)) == 1
    watch.look(seen("S"), 3.0)
    watch.look(seen("T"), 4.0)
    assert watch.look(seen("T"), 4.5) == []
    assert len(watch.look(seen("T"), 5.5)) == 1


def test_a_pid_that_comes_back_starts_anew() -> None:
    watch = StallWatch()
    watch.look(seen("T"), 0.0)
    watch.look({}, 1.0)
    assert watch.look(seen("T"), 2.0) == []


def test_this_process_is_sighted_running_and_switched() -> None:
    first = sight(os.getpid())
    time.sleep(0.01)
    second = sight(os.getpid())
    assert first.state == second.state == "R"
    assert second.switches > first.switches


def test_a_process_that_does_not_exist_is_gone() -> None:
    assert sight(2**22 + 1).state == GONE
