"""A worker that knows where its time goes: the product's, with timers around its parts.

Named in ``EngineConfig.worker_class``, it runs wherever the product's would, in the core process or
in a rank process; what it measured comes back through a call of its own.
"""

from __future__ import annotations

import os
from typing import Any

from benchmarks.phase_map import time_worker
from benchmarks.timers import Timers, medians

from torpor_protocol.methods import callable_method
from torpor_protocol.steps import ModelRunnerOutput
from torpor_worker.worker import Worker

LAYERS_VARIABLE = "TORPOR_BENCH_LAYERS"
CLASS_PATH = "benchmarks.timed_worker:TimedWorker"

# Of this process: with executor uni the engine's phases are timed with the same object.
TIMERS = Timers()


class TimedWorker(Worker):
    """``closes_steps``: whether it is alone in its process, so that nobody else closes them."""

    closes_steps = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        time_worker(TIMERS, layers=os.environ.get(LAYERS_VARIABLE) == "1")
        self._sample = TIMERS.timed(super().sample_tokens, "worker")

    @callable_method
    def sample_tokens(self) -> ModelRunnerOutput | None:
        output: ModelRunnerOutput | None = self._sample()
        if self.closes_steps and output is not None:
            TIMERS.end_step(len(output.rows) // 4)
        return output

    @callable_method
    def clear_phases(self) -> None:
        TIMERS.clear()

    @callable_method
    def phases(self, rows: int) -> dict[str, float]:
        """Milliseconds by phase of the steps of ``rows`` since they were cleared."""
        return medians(TIMERS.steps, rows)
