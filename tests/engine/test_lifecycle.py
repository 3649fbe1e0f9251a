"""Sleep and wake as pure functions: every state meets every command."""

from __future__ import annotations

import pytest

from torpor_engine.core.lifecycle import ALL_TAGS, Status, next_for_sleep, tags_to_wake
from torpor_protocol.requests import SleepCommand, SleepTag


def status(level: int) -> Status:
    made = Status("Awake")
    if level:
        made.slept(level)
    return made


@pytest.mark.parametrize(
    ("level", "wanted", "mode", "unfinished", "step"),
    [
        (0, 1, "wait", False, "sleep"),
        (0, 1, "wait", True, "drain"),
        (0, 2, "keep", True, "sleep"),
        (0, 3, "abort", True, "sleep"),
        (1, 1, "wait", False, "done"),
        (1, 2, "wait", True, "sleep"),
        (2, 1, "wait", False, "done"),
        (2, 3, "abort", False, "sleep"),
        (3, 3, "wait", True, "done"),
    ],
)
def test_next_for_sleep(level: int, wanted: int, mode: str, unfinished: bool, step: str) -> None:
    command = SleepCommand(1, wanted, mode)  # type: ignore[arg-type]
    assert next_for_sleep(status(level), command, unfinished) == step


def test_half_awake_is_not_asleep_enough() -> None:
    half = status(2)
    half.woke(("weights",))
    assert half.lifecycle == "Asleep"
    assert next_for_sleep(half, SleepCommand(1, 1, "wait"), False) == "sleep"


@pytest.mark.parametrize(
    ("level", "wanted", "tags"),
    [
        (2, (), ALL_TAGS),
        (2, ("weights",), ("weights",)),
        (2, ("kv_cache", "weights"), ("weights", "kv_cache")),
        (3, ("weights",), ALL_TAGS),
        (0, ("weights",), ()),
    ],
)
def test_tags_to_wake(level: int, wanted: tuple[SleepTag, ...], tags: tuple[SleepTag, ...]) -> None:
    assert tags_to_wake(status(level), wanted) == tags


def test_awake_only_when_no_tag_is_asleep() -> None:
    replica = status(1)
    replica.woke(("weights",))
    assert (replica.lifecycle, replica.level, replica.asleep) == ("Asleep", 1, ("kv_cache",))
    replica.woke(("kv_cache",))
    assert (replica.lifecycle, replica.level, replica.asleep) == ("Awake", 0, ())
