"""The in-process executor: one rank, no wire. Forming anew is dropping the worker for another."""

from __future__ import annotations

import gc
import importlib
import logging
import os
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from torpor_engine.executor.base import Executor
from torpor_protocol.config import MemoryReport, RankAssignment
from torpor_protocol.errors import (
    ConfigError,
    GroupLost,
    RankFailed,
    TorporError,
    class_name,
)
from torpor_protocol.methods import MethodTable
from torpor_protocol.requests import LoadProgress, RankState
from torpor_protocol.rpc import new_group_id

log = logging.getLogger(__name__)


class Done(msgspec.Struct, frozen=True):
    """A call that has already run."""

    values: list[Any]

    def done(self) -> bool:
        return True

    def result(self) -> list[Any]:
        return self.values


class UniExecutor(Executor):
    _worker: Any = None
    _started = 0.0

    def _init_executor(self) -> None:
        worker_class = load_class(self.config.worker_class)
        self._methods = MethodTable(worker_class)
        self.group = new_group_id().hex()
        self._started = time.monotonic()
        assignment = RankAssignment(
            rank=0, local_rank=0, local_size=1, group=self.group, store="", interface=""
        )
        self._worker = worker_class(self.config, assignment, progress=self._progress)

    def _progress(self, tensors: int, total: int, done_bytes: int, total_bytes: int) -> None:
        seconds = time.monotonic() - self._started
        self.hooks.on_progress(LoadProgress(tensors, total, done_bytes, total_bytes, seconds))
        self.hooks.while_waiting()

    def collective_rpc(  # type: ignore[override]
        self,
        method: str,
        timeout: float | None = None,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        non_block: bool = False,
        *,
        output_rank: int = -1,
        result_type: Any = Any,
    ) -> list[Any] | Done:
        if self._worker is None:
            raise GroupLost("RankLost", "There is no worker in this process.")
        if method not in self._methods.names:
            raise RankFailed(0, "WireError", f"No worker method is called {method!r}.")
        values = [self._call(method, args, kwargs or {})]
        return Done(values) if non_block else values

    def _call(self, method: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        try:
            return getattr(self._worker, method)(*args, **kwargs)
        except TorporError as error:
            raise RankFailed(0, class_name(error), error.cause, error.fix) from error
        except Exception as error:
            log.error("Rank 0 failed in %s:\n%s", method, traceback.format_exc())
            raise RankFailed(0, type(error).__name__, f"Rank 0 failed in {method}: {error}") from (
                error
            )

    def check_health(self) -> None:
        return None

    def disband(self) -> None:
        if self._worker is not None:
            worker, self._worker = self._worker, None
            worker.shutdown()
            del worker
            gc.collect()
        super().disband()

    def rank_states(self) -> list[RankState]:
        if self._worker is None:
            return []
        pid = os.getpid()
        memory = MemoryReport(0, pid, _resident(), 0, 0)
        return [RankState(rank=0, pid=pid, state="running", memory=memory)]


def _resident() -> int:
    """Resident bytes of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def load_class(path: str) -> Any:
    """Import "module:Class". Raises ConfigError."""
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"Worker class {path!r} cannot be imported: {error}.",
            "Install torpor with the extra [worker], or name a class that exists.",
        ) from error
