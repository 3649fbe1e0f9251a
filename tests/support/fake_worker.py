"""A worker without torch: named in a configuration and imported by real rank processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from torpor_protocol.config import EngineConfig, RankAssignment
from torpor_protocol.errors import MemoryBudgetError
from torpor_protocol.limits import MAX_FRAME_BYTES
from torpor_protocol.methods import callable_method
from unpickling import WAYS, outcome

ERRORS: dict[str, Callable[[], Exception]] = {
    "ValueError": lambda: ValueError("the value is odd"),
    "MemoryBudgetError": lambda: MemoryBudgetError("It does not fit.", "Take less."),
    "long": lambda: RuntimeError("x" * 10**6),
}


class FakeWorker:
    """Every method is as small as the fault or the rule that a test looks at."""

    def __init__(
        self,
        config: EngineConfig,
        assignment: RankAssignment,
        progress: Callable[[int, int, int, int], None],
    ) -> None:
        self.assignment = assignment
        self.progress = progress
        self.steps = 0

    @callable_method
    def echo(self, value: str) -> str:
        return value

    @callable_method
    def add(self, left: int, right: int = 1) -> int:
        return left + right

    @callable_method
    def unpickle(self) -> dict[str, str]:
        return {way: outcome(way) for way in WAYS}

    @callable_method
    def step(self) -> int:
        self.steps += 1
        return self.steps

    @callable_method
    def describe(self) -> dict[str, Any]:
        return {
            "threads": os.environ["OMP_NUM_THREADS"],
            "interface": self.assignment.interface,
            "torch": "torch" in sys.modules,
            "parent": os.getppid(),
        }

    @callable_method
    def fail(self, name: str) -> None:
        raise ERRORS[name]()

    @callable_method
    def too_much(self) -> bytes:
        return bytes(MAX_FRAME_BYTES + 1)

    @callable_method
    def not_encodable(self) -> object:
        return object()

    @callable_method
    def hang(self, seconds: float) -> None:
        time.sleep(seconds)

    @callable_method
    def load(self, tensors: int) -> None:
        for done in range(1, tensors + 1):
            self.progress(done, tensors, 10 * done, 10 * tensors)

    @callable_method
    def write(self, text: str, times: int) -> None:
        for _ in range(times):
            print(text)

    @callable_method
    def leave(self, status: int) -> None:
        os._exit(status)

    @callable_method
    def start_child(self) -> int:
        """A process that outlives its rank unless somebody cares."""
        return subprocess.Popen(["sleep", "1000"]).pid

    def not_callable(self) -> None:
        """Not marked: no call may reach it."""

    def shutdown(self) -> None:
        print("The worker shut down.")


class BrokenWorker(FakeWorker):
    def __init__(self, *_: Any, **__: Any) -> None:
        raise RuntimeError("the device is missing")
