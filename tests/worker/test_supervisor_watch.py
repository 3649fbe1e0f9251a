"""Which states of a process count as a stall, and for how long: on made-up observations."""

from __future__ import annotations

from torpor_worker.watch import Stall, StallWatch


def test_a_stopped_process_is_told_once_after_a_second() -> None:
    watch = StallWatch()
    assert watch.look({7: "T"}, 10.0) == []
    assert watch.look({7: "T"}, 11.0) == []
    assert watch.look({7: "T"}, 11.5) == [Stall(7, "T", 1.5)]
    assert watch.look({7: "T"}, 20.0) == []


def test_a_traced_process_counts_as_stopped() -> None:
    watch = StallWatch()
    watch.look({7: "t"}, 0.0)
    assert watch.look({7: "t"}, 1.5) == [Stall(7, "t", 1.5)]


def test_waiting_for_a_disk_takes_longer_to_be_a_stall() -> None:
    watch = StallWatch()
    watch.look({7: "D"}, 0.0)
    assert watch.look({7: "D"}, 10.0) == []
    assert watch.look({7: "D"}, 10.5) == [Stall(7, "D", 10.5)]


def test_running_and_sleeping_are_no_stalls() -> None:
    watch = StallWatch()
    for now in range(100):
        assert watch.look({1: "R", 2: "S", 3: "Z", 4: ""}, now) == []


def test_a_process_that_went_on_and_stops_again_is_told_again() -> None:
    watch = StallWatch()
    watch.look({7: "T"}, 0.0)
    assert len(watch.look({7: "T"}, 2.0)) == 1
    watch.look({7: "S"}, 3.0)
    watch.look({7: "T"}, 4.0)
    assert watch.look({7: "T"}, 4.5) == []
    assert len(watch.look({7: "T"}, 5.5)) == 1


def test_a_pid_that_comes_back_starts_anew() -> None:
    watch = StallWatch()
    watch.look({7: "T"}, 0.0)
    watch.look({}, 1.0)
    assert watch.look({7: "T"}, 2.0) == []
