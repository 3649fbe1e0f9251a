"""Calls under way on a group: which rank has answered what, and what the first error was."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from torpor_protocol.errors import DeadlineMissed, GroupLost, RankFailed
from torpor_protocol.rpc import Reply

ACKNOWLEDGEMENT = b"\xc0"


class GroupCall:
    """One ``collective_rpc``. ``pump`` processes messages until the deadline or an event."""

    def __init__(
        self,
        method: str,
        world_size: int,
        timeout: float,
        result_type: Any,
        pump: Callable[[float], None],
    ) -> None:
        self.method = method
        self.deadline = time.monotonic() + timeout
        self._timeout = timeout
        self._decoder = msgspec.msgpack.Decoder(result_type)
        self._pump = pump
        self._values: list[Any] = [None] * world_size
        self._missing = set(range(world_size))
        self.failure: GroupLost | None = None

    def accept(self, reply: Reply) -> None:
        """Take a rank's answer; an answer that does not decode counts as the rank's failure."""
        if reply.rank not in self._missing:
            return
        self._missing.discard(reply.rank)
        if reply.error is not None:
            if self.failure is None:
                self.failure = RankFailed(
                    reply.rank,
                    reply.error.error_class,
                    f"Rank {reply.rank} failed in {self.method}: {reply.error.message}"
                    if not reply.error.fix
                    else reply.error.message,
                    reply.error.fix,
                )
            return
        if bytes(reply.value) == ACKNOWLEDGEMENT:
            return
        try:
            self._values[reply.rank] = self._decoder.decode(reply.value)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self.failure = RankFailed(
                reply.rank,
                "WireError",
                f"Rank {reply.rank} answered {self.method} with something else: {error}.",
            )

    def done(self) -> bool:
        return self.failure is not None or not self._missing

    def result(self) -> list[Any]:
        """Wait for every rank. Raises RankFailed, DeadlineMissed or another GroupLost."""
        while not self.done():
            left = self.deadline - time.monotonic()
            if left <= 0:
                ranks = ", ".join(str(rank) for rank in sorted(self._missing))
                raise DeadlineMissed(
                    f"Rank {ranks} did not answer {self.method} within {self._timeout:.1f} s."
                )
            self._pump(left)
        if self.failure is not None:
            raise self.failure
        return self._values
