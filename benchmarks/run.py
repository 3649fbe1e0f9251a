"""`make bench`: measure, keep the raw figures, write the tables.

    python -m benchmarks.run [--quick] [--only overhead phases serving] [--rounds N] [--no-peers]
        [--dtypes float32 bfloat16]

Raw figures go to benchmarks/data/PART.json, tables into benchmarks/RESULTS.md between markers; text
around the markers is a person's. What else runs on the machine is in the figures, so run it alone.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import facts, model_serving, overhead, phases
from benchmarks.agent import AgentError
from benchmarks.peers import INSTALL_COMMAND, PEERS
from benchmarks.places import DATA, RESULTS
from benchmarks.tables import table, write_section

PARTS = ("overhead", "phases", "serving")
DTYPES = ("float32", "bfloat16")


def default_dtypes() -> list[str]:
    """Without vector units of its own bfloat16 takes minutes per figure and is nobody's choice."""
    return list(DTYPES) if facts.has_bfloat16() else ["float32"]


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round, few requests")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=default_dtypes())
    parser.add_argument("--no-peers", dest="peers", action="store_false")
    return parser.parse_args(arguments)


def missing_peers() -> str:
    """One sentence, empty when every peer is there."""
    missing = [name for name, peer in PEERS.items() if not peer.installed()]
    if not missing:
        return ""
    return f"Not measured, because not installed: {', '.join(missing)}. Run `{INSTALL_COMMAND}`."


def measure(part: str, chosen: argparse.Namespace, logs: Path) -> tuple[Any, str]:
    """A part's raw figures and its tables."""
    rounds = 1 if chosen.quick else chosen.rounds
    if part == "overhead":
        size = overhead.Size(rounds=rounds, peers=chosen.peers, out=64 if chosen.quick else 128)
        result: Any = overhead.run(size, logs)
        return result, overhead.text(result)
    if part == "phases":
        out = 16 if chosen.quick else 64
        result = phases.run(phases.Size(out, tuple(chosen.dtypes), rounds=rounds), logs)
        return result, phases.text(result)
    requests = {1: 1, 8: 8} if chosen.quick else None
    serving = model_serving.Size(rounds, requests, chosen.peers, tuple(chosen.dtypes))
    result = model_serving.run(serving, logs)
    return result, model_serving.text(result)


def write(part: str, result: Any, tables: str, about: dict[str, str]) -> None:
    DATA.mkdir(exist_ok=True)
    raw = {"machine": about, "at": time.strftime("%Y-%m-%d %H:%M"), "figures": result}
    (DATA / f"{part}.json").write_text(json.dumps(raw, indent=1) + "\n")
    note = f"Commit {about['commit']}."
    write_section(RESULTS, part, f"{tables}\n\n{note}")


def main(arguments: list[str] | None = None) -> int:
    chosen = parse(arguments)
    about = facts.machine()
    absent = missing_peers() if chosen.peers else ""
    rows = [[name, value] for name, value in about.items()]
    write_section(RESULTS, "machine", table(["what", "value"], rows) + f"\n\n{absent}")
    if absent:
        print(absent, file=sys.stderr, flush=True)
    logs = Path(tempfile.mkdtemp(prefix="torpor-bench-logs-"))
    failed = False
    for part in chosen.only:
        started = time.perf_counter()
        print(f"{part}:", file=sys.stderr, flush=True)
        try:
            result, tables = measure(part, chosen, logs)
        except (AgentError, RuntimeError, FileNotFoundError) as error:
            print(f"error: {part} was not measured: {error}", file=sys.stderr, flush=True)
            failed = True
            continue
        write(part, result, tables, about)
        print(f"{part}: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    print(f"Tables: {RESULTS}. Logs of the engines: {logs}.")
    return 1 if failed else 0


if __name__ == "__main__":
    # As an exception it passes through every block that ends a process of ours.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
