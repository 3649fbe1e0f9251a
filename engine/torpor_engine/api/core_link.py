"""The seam between API and core: all that the API knows of the process that makes tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torpor_protocol.requests import (
    AddRequest,
    CommandReply,
    DrainCommand,
    EngineState,
    EngineStats,
    OnCallCommand,
    SleepCommand,
    StepOutputs,
    WakeCommand,
)

OutputHandler = Callable[[StepOutputs], None]
Command = SleepCommand | WakeCommand | DrainCommand | OnCallCommand


class CoreLink(Protocol):
    """Everything here is called on the API's event loop, and nothing but `command` waits.

    `on_outputs` is set by the API and called with every StepOutputs, in order. `submit` raises
    EngineDead when the core is gone. `abort` may name requests that have ended.
    """

    on_outputs: OutputHandler

    def submit(self, request: AddRequest) -> None: ...

    def abort(self, ids: list[int]) -> None: ...

    async def command(self, command: Command) -> CommandReply:
        """Number the command, send it, and wait for its reply.

        Raises EngineDead when the core is gone, or goes while the command runs."""

    def state(self) -> EngineState:
        """The last state that the core pushed."""

    def stats(self) -> EngineStats:
        """The last statistics that the core pushed."""
