"""Where a decode step of a real model goes, phase by phase, at a batch of 1 and of 64.

Executor uni shows the parts (timers around the product's functions, in one process); executor mp
shows what the wire adds: the step as the core sees it less what the rank process worked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.agent import Agent
from benchmarks.models import smollm2, tiny
from benchmarks.phase_map import ENGINE_ORDER, WORKER_ORDER
from benchmarks.serving_table import cell
from benchmarks.stats import median_phases, spread
from benchmarks.tables import table

Rounds = Sequence[Mapping[str, Any]]

PROMPT = 128
RUNS = (("uni", "none"), ("uni", "layers"), ("mp", "step"))  # executor, which timers


@dataclass(frozen=True)
class Size:
    """``weightless``: measure the tiny model instead, in tests."""

    out: int = 64
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    batches: tuple[int, ...] = (1, 64)
    rounds: int = 3
    weightless: bool = False


def run(size: Size, logs: Path) -> dict[str, list[dict[str, Any]]]:
    """By dtype, executor, timers and batch the answers of each round, all alternately."""
    found: dict[str, list[dict[str, Any]]] = {}
    for dtype in size.dtypes:
        with ExitStack() as stack:
            agents = {
                which: stack.enter_context(closing(_agent(size, dtype, *which, logs)))
                for which in RUNS
            }
            for number, batch in product(range(size.rounds), size.batches):
                for which, agent in agents.items():
                    answer = _ask(agent, size, batch)
                    found.setdefault(" ".join((dtype, *which, str(batch))), []).append(answer)
                    told = f"  round {number}, {dtype}, {' '.join(which)}, batch {batch}"
                    print(f"{told}: {answer['step_ms']:.2f} ms/step", file=sys.stderr, flush=True)
    return found


def _agent(size: Size, dtype: str, executor: str, phases: str, logs: Path) -> Agent:
    model = tiny() if size.weightless else smollm2()
    command = [sys.executable, "-m", "benchmarks.agent_core", "--model", str(model)]
    command += ["--dtype", dtype, "--executor", executor, "--phases", phases]
    command += ["--max-num-seqs", str(max(size.batches))]
    return Agent(command, logs / f"phases-{dtype}-{executor}-{phases}.log")


def _ask(agent: Agent, size: Size, batch: int) -> dict[str, Any]:
    """The second job has the prompts of the first, so their prefixes are cached: only decoding is
    looked at here."""
    question = {"batch": batch, "prompt": PROMPT, "seed": batch}
    agent.ask(question | {"out": 4})
    return agent.ask(question | {"out": size.out})


def wire_ms(answer: Mapping[str, Any]) -> float:
    """What the core waits for beyond the rank's own work."""
    return float(answer["engine"]["executor"] - answer["worker"]["total"])


def dtype_table(result: Mapping[str, Rounds], dtype: str) -> str:
    """Milliseconds and share of the step, by phase and batch: medians over the rounds."""
    keys = [key for key in result if key.startswith(f"{dtype} uni layers ")]
    batches = [key.rsplit(" ", 1)[1] for key in keys]
    phases = [median_phases([a["engine"] for a in result[key]]) for key in keys]
    rows = []
    for name in (*ENGINE_ORDER, *WORKER_ORDER):
        if any(name in found for found in phases):
            rows.append([name, *(_share(found.get(name, 0.0), found) for found in phases)])

    def row(name: str, run: str, value: Callable[[Mapping[str, Any]], float]) -> None:
        rounds = [result[f"{dtype} {run} {batch}"] for batch in batches]
        rows.append([name, *(cell(spread([value(a) for a in each]), 2) for each in rounds)])

    row("**all, timed**", "uni layers", lambda answer: float(answer["engine"]["total"]))
    row("**step without timers**", "uni none", lambda answer: float(answer["step_ms"]))
    row("wire, with executor mp", "mp step", wire_ms)
    row("step with executor mp", "mp step", lambda answer: float(answer["step_ms"]))
    return table([f"{dtype}: ms per step", *(f"batch {batch}" for batch in batches)], rows)


def _share(value: float, phases: Mapping[str, float]) -> str:
    return f"{value:.2f} ({100 * value / phases['total']:.0f} %)"


def text(result: Mapping[str, Rounds]) -> str:
    dtypes = list(dict.fromkeys(key.split(" ", 1)[0] for key in result))
    return "\n\n".join(dtype_table(result, dtype) for dtype in dtypes)
