"""Rules of the work queue, with times given by hand."""

from __future__ import annotations

from torpor_operator.schedule import FIRST_BACKOFF, LAST_BACKOFF, SPACING, Schedule


def test_a_key_that_is_asked_for_often_is_taken_once() -> None:
    schedule: Schedule[str] = Schedule()
    for at in (3.0, 1.0, 2.0):
        schedule.add("a", at)
    assert schedule.take(0.9) is None
    assert schedule.next_time() == 1.0
    assert schedule.take(1.0) == "a"
    assert schedule.take(9.0) is None


def test_the_key_that_waits_the_longest_comes_first() -> None:
    schedule: Schedule[str] = Schedule()
    schedule.add("late", 2.0)
    schedule.add("early", 1.0)
    assert [schedule.take(5.0), schedule.take(5.0)] == ["early", "late"]


def test_what_is_asked_for_during_the_work_is_done_afterwards_and_not_beside() -> None:
    schedule: Schedule[str] = Schedule()
    schedule.add("a", 0.0)
    assert schedule.take(0.0) == "a"
    schedule.add("a", 1.0)
    assert schedule.take(2.0) is None
    assert schedule.next_time() is None
    schedule.finish("a", 2.0, 300.0)
    assert schedule.take(2.0) is None, "a burst of events is one piece of work"
    assert schedule.take(2.0 + SPACING) == "a"


def test_after_the_work_the_key_comes_back_when_it_said() -> None:
    schedule: Schedule[str] = Schedule()
    schedule.add("a", 0.0)
    schedule.take(0.0)
    schedule.finish("a", 10.0, 5.0)
    assert schedule.next_time() == 15.0


def test_failures_come_back_later_and_later_up_to_a_limit() -> None:
    schedule: Schedule[str] = Schedule()
    delays = []
    now = 0.0
    schedule.add("a", now)
    for _ in range(12):
        assert schedule.take(now) == "a"
        delays.append(schedule.fail("a", now))
        now += delays[-1]
    assert delays[:4] == [FIRST_BACKOFF * factor for factor in (1, 2, 4, 8)]
    assert delays[-1] == LAST_BACKOFF
    assert schedule.take(now) == "a"
    schedule.finish("a", now, 1.0)
    assert schedule.take(now + 1.0) == "a"
    assert schedule.fail("a", now + 1.0) == FIRST_BACKOFF, "a success forgets the failures"


def test_an_event_brings_a_failed_key_back_at_once() -> None:
    schedule: Schedule[str] = Schedule()
    now = 0.0
    schedule.add("a", now)
    for _ in range(8):
        assert schedule.take(now) == "a"
        now += schedule.fail("a", now)
    schedule.take(now)
    schedule.fail("a", now)
    schedule.add("a", now + 1.0)
    assert schedule.next_time() == now + 1.0


def test_a_forgotten_key_does_not_come_back_unless_it_was_asked_for_meanwhile() -> None:
    schedule: Schedule[str] = Schedule()
    for key in "ab":
        schedule.add(key, 0.0)
        schedule.take(0.0)
    schedule.add("b", 1.0)
    schedule.forget("a", 2.0)
    schedule.forget("b", 2.0)
    assert schedule.take(2.0) == "b"
    assert schedule.next_time() is None
    assert schedule.depth(9.0) == 1


def test_the_age_counts_from_when_work_was_due_until_it_is_finished() -> None:
    schedule: Schedule[str] = Schedule()
    assert schedule.oldest(5.0) == 0.0
    schedule.add("a", 10.0)
    assert schedule.oldest(9.0) == 0.0
    assert schedule.oldest(12.0) == 2.0
    schedule.take(12.0)
    assert schedule.oldest(40.0) == 30.0
    schedule.finish("a", 40.0, 300.0)
    assert schedule.oldest(41.0) == 0.0
