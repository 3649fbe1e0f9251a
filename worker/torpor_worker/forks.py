"""What a supervisor and its fork server say to each other: one JSON line per message.

Both ends are one program on one machine, joined by the two pipes of a child process, so the lines
carry no header and need no authentication.
"""

from __future__ import annotations

import os
from typing import TypeVar

import msgspec

from torpor_protocol.config import EngineConfig, RankAssignment
from torpor_protocol.rpc import RankKeys


class Fork(msgspec.Struct, frozen=True, tag="fork"):
    """Start these ranks of one group. ``threads``: intra-op threads of each."""

    endpoint: str
    config: EngineConfig
    assignments: list[RankAssignment]
    keys: list[RankKeys]
    threads: int


class Kill(msgspec.Struct, frozen=True, tag="kill"):
    """SIGKILL every rank."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """Everything is imported: ranks can be forked."""


class Forked(msgspec.Struct, frozen=True, tag="forked"):
    rank: int
    pid: int


class Exited(msgspec.Struct, frozen=True, tag="exited"):
    """A rank is dead and reaped. ``pid`` 0: it could not be forked at all."""

    rank: int
    pid: int
    status: int
    log_tail: str


Command = Fork | Kill
Report = Ready | Forked | Exited

_encoder = msgspec.json.Encoder()
command_decoder = msgspec.json.Decoder(Command)
report_decoder = msgspec.json.Decoder(Report)
T = TypeVar("T")


def write_line(fd: int, message: Command | Report) -> None:
    """Write all of it, also when a signal interrupts. Raises BrokenPipeError."""
    line = memoryview(_encoder.encode(message) + b"\n")
    while line:
        line = line[os.write(fd, line) :]


class Lines:
    """Cuts what arrives on a pipe into messages; a line may come in pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes, decoder: msgspec.json.Decoder[T]) -> list[T]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return [decoder.decode(line) for line in lines]
