"""The scheduler decides what the workers compute next. It does no I/O, reads no clock and draws no
random number: the same calls give the same steps."""

from __future__ import annotations

from torpor_engine.scheduler.scheduler import Scheduler

__all__ = ["Scheduler"]
