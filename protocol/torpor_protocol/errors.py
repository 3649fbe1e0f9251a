"""Every error that leaves a Torpor module.

    TorporError                    cause in one sentence, fix in one sentence, an exit code
    ├── ConfigError                a flag, manifest or environment value is wrong
    ├── ModelError                 the model folder cannot be used
    ├── PortError                  an address cannot be bound
    ├── MemoryBudgetError          weights or KV cache do not fit
    ├── WireError                  a frame from a peer is refused (never fatal to the service)
    ├── GroupLost                  a rank died, hung or failed: the group is to be formed anew
    │   ├── RankFailed             a rank answered with an error of its own
    │   ├── DeadlineMissed         a rank did not answer in time
    │   └── PeerGone               a peer is not connected or reads nothing
    ├── RecoveryExhausted          the group was lost too often
    └── EngineDead                 the core process is gone

A user reads ``cause`` and ``fix`` only; tracebacks go to the log of the process they came from.
"""

from __future__ import annotations

from typing import ClassVar


class TorporError(Exception):
    """Base of the tree. ``str()`` gives both sentences."""

    exit_code: ClassVar[int] = 1

    def __init__(self, cause: str, fix: str = "") -> None:
        super().__init__(cause, fix)
        self.cause = cause
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.cause} {self.fix}".strip()


class ConfigError(TorporError):
    exit_code = 2


class ModelError(TorporError):
    exit_code = 3


class PortError(TorporError):
    exit_code = 4


class MemoryBudgetError(TorporError):
    exit_code = 5


class WireError(TorporError):
    """A refused frame. ``reason`` is the label under which it is counted."""

    exit_code = 6

    def __init__(self, reason: str, cause: str) -> None:
        super().__init__(cause)
        self.reason = reason


class GroupLost(TorporError):
    """The group cannot go on. ``reason`` is one of the condition reasons, e.g. ``RankLost``.

    ``external``: somebody else did it (SIGKILL, SIGSTOP), so no request is suspected of it."""

    exit_code = 7

    def __init__(self, reason: str, cause: str, fix: str = "", *, external: bool = False) -> None:
        super().__init__(cause, fix)
        self.reason = reason
        self.external = external


class RankFailed(GroupLost):
    """A rank raised. ``error_class`` names the exception class on the rank, ``rank`` the rank."""

    def __init__(self, rank: int, error_class: str, cause: str, fix: str = "") -> None:
        super().__init__("RankFailed", cause, fix)
        self.rank = rank
        self.error_class = error_class


class DeadlineMissed(GroupLost):
    def __init__(self, cause: str) -> None:
        super().__init__("EngineStalled", cause)


class PeerGone(GroupLost):
    """Nothing can be sent to ``peer``: it is not connected, or its queue is full."""

    def __init__(self, peer: str, why: str) -> None:
        super().__init__("PeerGone", f"The peer {peer} is gone: {why}.")
        self.peer = peer


class RecoveryExhausted(TorporError):
    exit_code = 7


class EngineDead(TorporError):
    exit_code = 8


def class_name(error: BaseException) -> str:
    """The name under which an error crosses a process boundary: the nearest class of the tree
    above, which both sides know (a corrupt checkpoint is a ModelError), or the class's own."""
    for kind in type(error).__mro__:
        if kind.__module__ == __name__ and kind is not TorporError:
            return kind.__name__
    return type(error).__name__
