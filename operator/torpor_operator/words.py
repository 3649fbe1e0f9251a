"""Texts of others (kubelet, scheduler, engine) made fit for a status: short, and always the same.

A text that changes with each retry would be a write with each retry, so attempt numbers, times and
ids are left out.
"""

from __future__ import annotations

import re
from typing import Final

from torpor_protocol.words import printable

LONGEST: Final = 1000  # of a message about one pod or replica
_ERROR_START: Final = "torpor: "
_TIME: Final = re.compile(r"^\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\S*\s+")
# The usual causes of a failed pull, as registries and runtimes word them.
_PULL_CAUSES: Final = (
    ("not found", "it is not there"),
    ("manifest unknown", "it is not there"),
    ("repository does not exist", "it is not there"),
    ("unauthorized", "access is denied"),
    ("denied", "access is denied"),
    ("forbidden", "access is denied"),
    ("no such host", "the registry's name is unknown"),
    ("connection refused", "the registry does not answer"),
    ("timeout", "the registry does not answer"),
    ("invalid reference", "the name is not valid"),
    ("couldn't parse", "the name is not valid"),
)


# What the scheduler adds to its reason; it says nothing that a user could act on.
_SCHEDULER_NOISE: Final = re.compile(r"\s*(no new claims to deallocate|preemption:).*", re.DOTALL)


def fit(text: str, longest: int = LONGEST) -> str:
    """On one line and not longer than ``longest`` characters."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= longest else line[: longest - 1] + "…"


def sentence(text: str) -> str:
    """With a full stop at its end, so that another one may follow."""
    line = fit(text)
    return line if not line or line[-1] in ".!?…" else f"{line}."


def scheduler_words(text: str) -> str:
    """Why no node takes a pod, without what preemption would have done."""
    return sentence(_SCHEDULER_NOISE.sub("", text).rstrip(", "))


def last_words(log: str) -> str:
    """The error at the end of a log: the two sentences of a TorporError, else its last line."""
    lines = [line for line in log.splitlines() if line.strip()]
    for place in range(len(lines) - 1, -1, -1):
        if lines[place].startswith(_ERROR_START):
            return sentence(" ".join([lines[place][len(_ERROR_START) :], *lines[place + 1 :]]))
    return sentence(_TIME.sub("", lines[-1])) if lines else ""


def pull_cause(message: str) -> str:
    """Why an image cannot be pulled, in brackets; empty where the text does not tell."""
    folded = message.lower()
    for mark, cause in _PULL_CAUSES:
        if mark in folded:
            return f" ({cause})"
    return ""
