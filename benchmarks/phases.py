"""Where a decode step of a real model goes, phase by phase, at a batch of 1 and of 64.

Executor uni shows the parts (timers around the product's functions, in one process); executor mp
shows what the wire adds: the step as the core sees it less what the rank process worked.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.agent import Agent
from benchmarks.models import smollm2, tiny
from benchmarks.phase_map import ENGINE_ORDER, WORKER_ORDER
from benchmarks.tables import table

PROMPT = 128


@dataclass(frozen=True)
class Size:
    """``weightless``: measure the tiny model instead, in tests."""

    out: int = 64
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    batches: tuple[int, ...] = (1, 64)
    weightless: bool = False


def run(size: Size, logs: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for dtype in size.dtypes:
        for executor, phases in (("uni", "none"), ("uni", "layers"), ("mp", "step")):
            with closing(_agent(size, dtype, executor, phases, logs)) as agent:
                for batch in size.batches:
                    answer = _ask(agent, size, batch)
                    found[f"{dtype} {executor} {phases} {batch}"] = answer
                    told = f"  {dtype}, {executor}, batch {batch}: {answer['step_ms']:.2f} ms/step"
                    print(told, file=sys.stderr, flush=True)
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


def dtype_table(result: Mapping[str, Any], dtype: str) -> str:
    """Milliseconds and share of the step, by phase and batch."""
    keys = [key for key in result if key.startswith(f"{dtype} uni layers ")]
    batches = [key.rsplit(" ", 1)[1] for key in keys]
    phases = {batch: result[f"{dtype} uni layers {batch}"]["engine"] for batch in batches}
    rows = []
    for name in (*ENGINE_ORDER, *WORKER_ORDER):
        if any(name in found for found in phases.values()):
            rows.append([name, *(_share(phases[b].get(name, 0.0), phases[b]) for b in batches)])
    rows.append(["**all, timed**", *(f"{phases[b]['total']:.2f}" for b in batches)])
    bare = [result[f"{dtype} uni none {b}"]["step_ms"] for b in batches]
    rows.append(["**step without timers**", *(f"{value:.2f}" for value in bare)])
    wired = [result[f"{dtype} mp step {b}"] for b in batches]
    rows.append(["wire, with executor mp", *(f"{wire_ms(answer):.2f}" for answer in wired)])
    rows.append(["step with executor mp", *(f"{answer['step_ms']:.2f}" for answer in wired)])
    return table([f"{dtype}: ms per step", *(f"batch {batch}" for batch in batches)], rows)


def _share(value: float, phases: Mapping[str, float]) -> str:
    return f"{value:.2f} ({100 * value / phases['total']:.0f} %)"


def text(result: Mapping[str, Any]) -> str:
    dtypes = list(dict.fromkeys(key.split(" ", 1)[0] for key in result))
    return "\n\n".join(dtype_table(result, dtype) for dtype in dtypes)
