"""What a runner refuses.

TorporError
├── StepRefused          a step does not fit the rows as they are; nothing was changed
└── OverlappingWrites    two staged writes touch one cell; nothing was written
"""

from __future__ import annotations

from torpor_protocol.errors import TorporError

RESYNC = "Form the group anew: the scheduler and this rank disagree about the rows."


class StepRefused(TorporError):
    """``cause`` names the first row that does not fit."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause, RESYNC)


class OverlappingWrites(TorporError):
    """A row was written twice between two applies."""
