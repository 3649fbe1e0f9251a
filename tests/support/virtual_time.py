"""An event loop whose clock jumps to the next timer when nothing else is to be done: what waits for
minutes is tested in milliseconds, and in the same order every time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Jumping(selectors.SelectSelector):
    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if found or timeout == 0:
            return found
        if timeout is None:
            raise AssertionError("Everything waits, and no timer would end it.")
        self.loop.jump(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = 1000.0
        selector = _Jumping()
        super().__init__(selector)
        selector.loop = self

    def time(self) -> float:
        return self._virtual

    def jump(self, seconds: float) -> None:
        self._virtual += seconds


def run_virtual(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


def loop_time() -> float:
    return asyncio.get_running_loop().time()
