"""How loading is shown: tensors n/m, bytes and time left, on a terminal and in a log."""

from __future__ import annotations

import io
import logging
import re
import sys
from types import SimpleNamespace

import pytest

from torpor_engine import progress
from torpor_engine.progress import BarDisplay, LogDisplay, describe, load_display
from torpor_protocol.requests import LoadProgress

MIB = 2**20
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
ERASE_LINE, SHOW_CURSOR = "\x1b[2K", "\x1b[?25h"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    @property
    def text(self) -> str:
        """What was written, without colours and moves of the cursor."""
        return CONTROL.sub("", self.getvalue())


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """One of 120 columns, whatever the tests run on; a test makes it standard error itself, for
    pytest sets its own between a fixture and its test."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    return Terminal()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=made))
    return made


def loaded(tensors: int, seconds: float = 1.0) -> LoadProgress:
    """So many of 40 tensors of 12.5 MiB."""
    return LoadProgress(tensors, 40, tensors * 25 * MIB // 2, 500 * MIB, seconds)


@pytest.mark.parametrize(
    ("tensors", "seconds", "line"),
    [
        (0, 0.0, "Loading 0/40 tensors, 0 of 500 MiB"),
        (0, 3.0, "Loading 0/40 tensors, 0 of 500 MiB"),
        (10, 0.0, "Loading 10/40 tensors, 125 of 500 MiB"),
        (10, 2.0, "Loading 10/40 tensors, 125 of 500 MiB, 6 s left"),
        (30, 90.0, "Loading 30/40 tensors, 375 of 500 MiB, 30 s left"),
        (40, 8.0, "Loading 40/40 tensors, 500 of 500 MiB"),
    ],
)
def test_description(tensors: int, seconds: float, line: str) -> None:
    assert describe(loaded(tensors, seconds)) == line


def test_a_log_gets_a_line_every_two_seconds_and_one_at_the_end(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    display = LogDisplay()
    with caplog.at_level(logging.INFO, logger=progress.__name__):
        for tensors in range(1, 41):
            clock.now += 0.125
            display.show(loaded(tensors, tensors / 8))
        display.show(loaded(40, 5.0))
        display.close()
    assert caplog.messages == [
        "Loading 1/40 tensors, 12 of 500 MiB, 5 s left",
        "Loading 17/40 tensors, 212 of 500 MiB, 3 s left",
        "Loading 33/40 tensors, 412 of 500 MiB, 1 s left",
        "Loading 40/40 tensors, 500 of 500 MiB",
    ]


def test_a_bar_shows_tensors_bytes_and_time_left_and_goes_away(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal)
    display = BarDisplay()
    clock = Clock()
    monkeypatch.setattr(display._progress, "get_time", clock)
    for tensors in (10, 20):
        clock.now += 2
        display.show(loaded(tensors))
    display.close()
    last = terminal.text.rstrip().splitlines()[-1]
    assert "Loading 20/40 tensors" in last
    assert "250.0/500.0 MiB" in last
    assert "0:00:04" in last
    assert SHOW_CURSOR in terminal.getvalue()
    assert terminal.getvalue().endswith(ERASE_LINE)


def test_the_display_suits_standard_error(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal)
    bar = load_display()
    bar.close()
    assert isinstance(bar, BarDisplay)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert isinstance(load_display(), LogDisplay)
