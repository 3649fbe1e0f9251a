"""Our core loop as an agent (see ``agent``): scheduler, executor and worker, no HTTP.

    python -m benchmarks.agent_core --model FOLDER [--executor mp] [--phases none|step|layers]

Asked {"batch", "prompt", "out", "seed"}, it answers {"wall_s", "step_ms", "engine", "worker"}, the
last two in milliseconds by phase when phases are timed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

import msgspec
from benchmarks.agent import ANSWER
from benchmarks.core_feed import Feed, Job, Run
from benchmarks.phase_map import time_engine
from benchmarks.timed_worker import CLASS_PATH, LAYERS_VARIABLE, TIMERS, TimedWorker
from benchmarks.timers import medians

from torpor_engine.configure import Flags, resolve
from torpor_engine.core.loop import Core
from torpor_engine.core.settings import CoreSettings
from torpor_protocol.config import EngineConfig, WakeConfig


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--executor", default="uni")
    parser.add_argument("--phases", choices=("none", "step", "layers"), default="none")
    parser.add_argument("--max-num-seqs", type=int, default=64)
    parser.add_argument("--max-model-len", type=int, default=512)
    parser.add_argument("--kv-cache-memory", default="1Gi")
    return parser.parse_args(arguments)


def configuration(chosen: argparse.Namespace) -> EngineConfig:
    flags = Flags(
        dtype=chosen.dtype,
        executor=chosen.executor,
        max_num_seqs=chosen.max_num_seqs,
        max_model_len=chosen.max_model_len,
        kv_cache_memory=chosen.kv_cache_memory,
    )
    config = msgspec.structs.replace(
        resolve(str(chosen.model), flags).config, wake=WakeConfig(canary=False)
    )
    if chosen.phases == "none":
        return config
    os.environ[LAYERS_VARIABLE] = "1" if chosen.phases == "layers" else "0"
    return msgspec.structs.replace(config, worker_class=CLASS_PATH)


class Measured:
    """One core and the jobs that standard input asks of it."""

    def __init__(self, config: EngineConfig, timed: bool, run_dir: str) -> None:
        self._timed = timed
        self._in_process = config.executor == "uni"
        self.feed = Feed(config.model.vocab_size, self._next, self._start, self._answer)
        self.core = Core(CoreSettings(config, -1, run_dir), self.feed)
        if timed:
            TimedWorker.closes_steps = not self._in_process
            self._watch_turns()

    def _watch_turns(self) -> None:
        """Time the engine, and close a step wherever a turn of the loop handed out tokens."""
        time_engine(TIMERS)
        timed_turn = Core._turn

        def turn(core: Core, *args: object) -> None:
            self.feed.last_rows = 0
            timed_turn(core, *args)  # type: ignore[arg-type]
            TIMERS.end_step(self.feed.last_rows)

        Core._turn = turn  # type: ignore[method-assign, assignment]

    def _next(self) -> Job | None:
        line = sys.stdin.readline()
        return Job(**json.loads(line)) if line.strip() else None

    def _start(self, job: Job) -> None:
        if self._timed:
            TIMERS.clear()
            self.core.executor.collective_rpc("clear_phases", 10.0)

    def _answer(self, run: Run) -> None:
        answer: dict[str, object] = {"wall_s": run.wall, "step_ms": run.step_ms()}
        if self._timed:
            rows = run.job.batch
            answer["engine"] = medians(TIMERS.steps, rows)
            if not self._in_process:
                values = self.core.executor.collective_rpc("phases", 10.0, (rows,))
                answer["worker"] = values[0]
        print(ANSWER + json.dumps(answer), flush=True)


def main(arguments: list[str] | None = None) -> int:
    chosen = parse(arguments)
    with tempfile.TemporaryDirectory(prefix="torpor-bench-") as run_dir:
        measured = Measured(configuration(chosen), chosen.phases != "none", run_dir)
        try:
            measured.core.run()
        finally:
            measured.core.close()
            measured.feed.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
