"""Servers side by side over HTTP: same prompts, same load generator, alternately in one run.

All servers stay up, because some take minutes to start; one is loaded at a time, and one that burns
cores while nothing is asked of it is stopped by signal meanwhile. In each round every server gets
every number of streams, neighbours in time next to each other, so that a ratio within a round does
not see the machine drift.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.places import ROOT
from benchmarks.processes import Tree, environment, free_port, wait_for_status
from benchmarks.prompts import make_prompts
from benchmarks.quiet import Disturbance
from benchmarks.servers import HOST, Server

READY_SECONDS = 420.0
LOAD_SECONDS = 600.0
SPINS_FROM = 0.1  # cores
WARM_STREAMS = 4


@dataclass(frozen=True)
class Plan:
    """``levels``: numbers of streams, and how many requests each gets."""

    model: Path
    levels: dict[int, int]
    prompt: int
    out: int
    rounds: int


@dataclass
class Up:
    """A server that runs. ``loads``: what was measured, with round and streams."""

    server: Server
    tree: Tree
    port: int
    ready_s: float
    pss_mb: float = 0.0
    idle_cores: float = 0.0
    loads: list[dict[str, Any]] = field(default_factory=list)

    @property
    def spins(self) -> bool:
        return self.idle_cores > SPINS_FROM

    def figures(self) -> dict[str, Any]:
        return {
            "name": self.server.name,
            "ours": self.server.ours,
            "dtype": self.server.dtype,
            "ready_s": round(self.ready_s, 2),
            "pss_mb": round(self.pss_mb),
            "idle_cores": round(self.idle_cores, 3),
            "loads": self.loads,
        }


class ServerFailed(Exception):
    """It did not become ready, or its first answer was an error; the message says which."""


def measure(servers: Sequence[Server], plan: Plan, logs: Path) -> list[dict[str, Any]]:
    """Figures of each server that came up, in the order given; the others are told and left out."""
    with ExitStack() as stack:
        running: list[Up] = []
        for server in servers:
            try:
                running.append(stack.enter_context(_started(server, plan, logs)))
            except ServerFailed as failure:
                print(f"  {server.name} is left out: {failure}", file=sys.stderr, flush=True)
        for number in range(plan.rounds):
            # The first of a round has the quieter machine; everyone is first in turn.
            turn = number % len(running) if running else 0
            for streams in plan.levels:
                for up in running[turn:] + running[:turn]:
                    up.loads.append(_load(up, plan, streams, number))
        return [up.figures() for up in running]


@contextmanager
def _started(server: Server, plan: Plan, logs: Path) -> Iterator[Up]:
    port = free_port()
    command = [part.replace("{port}", str(port)) for part in server.command]
    log = logs / (server.name.replace(" ", "-") + ".log")
    tree = Tree(command, log, server.extra_environment)
    try:
        if not wait_for_status(tree, f"http://{HOST}:{port}/health", READY_SECONDS):
            raise ServerFailed(f"it did not become ready.\n{tree.tail()}")
        up = Up(server, tree, port, 0.0)
        _first_answer(up, plan)
        up.ready_s = time.perf_counter() - tree.started
        _run_load(up, plan, WARM_STREAMS, WARM_STREAMS, seed=999)
        up.idle_cores = tree.idle_cores()
        _rest(up)
        print(f"  {server.name}: ready after {up.ready_s:.1f} s", file=sys.stderr, flush=True)
        yield up
    finally:
        _wake(tree)
        tree.stop()


def _first_answer(up: Up, plan: Plan) -> None:
    """Ready is who answers: health is told by some before their model is there."""
    deadline = time.perf_counter() + READY_SECONDS
    while True:
        result = _run_load(up, plan, 1, 1, seed=998)
        if result["ok"]:
            return
        if not up.tree.alive or time.perf_counter() > deadline:
            raise ServerFailed(f"{result['first_error']}\n{up.tree.tail()}")
        time.sleep(0.2)


def _load(up: Up, plan: Plan, streams: int, number: int) -> dict[str, Any]:
    _wake(up.tree, up.spins)
    with Disturbance([up.tree]) as disturbance:
        result = _run_load(up, plan, streams, plan.levels[streams], seed=100 * number + streams)
    up.pss_mb = max(up.pss_mb, up.tree.pss_bytes() / 1e6)
    _rest(up)
    result |= {"round": number, "streams": streams}
    result |= {"other_cores": disturbance.other, "steal_cores": disturbance.steal}
    rate, errors = result["output_tok_s"], result["errors"]
    text = f"  round {number}, {streams} streams, {up.server.name}: {rate:.1f} tok/s"
    told = f", {errors} errors, the first: {result['first_error']}" if errors else ""
    print(text + told, file=sys.stderr, flush=True)
    return result


def _run_load(up: Up, plan: Plan, streams: int, requests: int, seed: int) -> dict[str, Any]:
    """One run of the load generator; a run that fails counts as errors."""
    prompts = make_prompts(plan.model, requests, plan.prompt, seed)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(prompts, file)
        file.flush()
        command = [sys.executable, "-m", "benchmarks.load", "--host", HOST]
        command += ["--port", str(up.port), "--model", up.server.model, "--prompts", file.name]
        command += ["--concurrency", str(streams), "--max-tokens", str(plan.out)]
        command += ["--fields", json.dumps(dict(up.server.fields))]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=LOAD_SECONDS,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"The load generator failed:\n{done.stderr}")
    return dict(json.loads(done.stdout))


def _rest(up: Up) -> None:
    if up.spins:
        for member in up.tree.members():
            member.send_signal(signal.SIGSTOP)


def _wake(tree: Tree, spins: bool = True) -> None:
    if spins:
        for member in tree.members():
            member.send_signal(signal.SIGCONT)
