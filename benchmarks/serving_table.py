"""The serving figures as tables: rates with their ratios to ours, times, and what a start costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.stats import Spread, ratios, spread
from benchmarks.tables import table

Figures = dict[str, Any]


def rates(server: Figures, streams: int) -> dict[int, float]:
    """Output tokens per second by round; rounds with errors do not count."""
    return {
        load["round"]: load["output_tok_s"]
        for load in server["loads"]
        if load["streams"] == streams and not load["errors"]
    }


def levels(servers: Sequence[Figures]) -> list[int]:
    return sorted({load["streams"] for server in servers for load in server["loads"]})


def cell(value: Spread | None, digits: int = 1, scale: float = 1.0) -> str:
    if value is None:
        return "–"
    scaled = Spread(value.median * scale, value.low * scale, value.high * scale, value.count)
    return scaled.text(digits)


def rate_table(servers: Sequence[Figures]) -> str:
    columns = levels(servers)
    rows = [
        [server["name"], *(cell(spread(list(rates(server, c).values()))) for c in columns)]
        for server in servers
    ]
    return table(["output tokens/s, streams:", *map(str, columns)], rows)


def ratio_table(servers: Sequence[Figures]) -> str:
    """Ours by each peer of the same type, round by round. Empty without a peer."""
    columns = levels(servers)
    rows = []
    for ours in (server for server in servers if server["ours"]):
        for peer in (server for server in servers if not server["ours"]):
            if peer["dtype"] == ours["dtype"]:
                cells = [cell(spread(ratios(rates(ours, c), rates(peer, c))), 2) for c in columns]
                rows.append([f"{ours['name']} / {peer['name']}", *cells])
    return table(["ratio, streams:", *map(str, columns)], rows) if rows else ""


TIMES = (("TTFT", "ttft", 1), ("TPOT", "tpot", 1), ("ITL", "itl", 1))


def time_table(servers: Sequence[Figures]) -> str:
    """Medians over the rounds of each round's percentiles, in milliseconds."""
    rows = []
    for server in servers:
        for streams in levels(servers):
            good = [x for x in server["loads"] if x["streams"] == streams and not x["errors"]]
            cells = []
            for _, name, digits in TIMES:
                for percent in ("p50", "p99"):
                    key = f"{name}_{percent}"
                    values = [load[key] for load in good if load[key] is not None]
                    middle = spread(values)
                    cells.append("–" if middle is None else f"{1000 * middle.median:.{digits}f}")
            rows.append([server["name"], str(streams), *cells])
    heads = [f"{title} {percent}" for title, _, _ in TIMES for percent in ("p50", "p99")]
    return table(["ms", "streams", *heads], rows)


def start_table(servers: Sequence[Figures]) -> str:
    rows = [
        [
            server["name"],
            f"{server['ready_s']:.1f}",
            f"{server['pss_mb']:.0f}",
            f"{server['idle_cores']:.2f}",
        ]
        for server in servers
    ]
    return table(["server", "start to first answer, s", "memory (PSS), MB", "idle, cores"], rows)


def quiet_line(servers: Sequence[Figures]) -> str:
    loads = [load for server in servers for load in server["loads"]]
    other = spread([load["other_cores"] for load in loads])
    steal = spread([load["steal_cores"] for load in loads])
    errors = sum(load["errors"] for load in loads)
    return (
        f"Other programs took {cell(other, 2)} cores, the host {cell(steal, 3)}; "
        f"{errors} of {sum(load['ok'] for load in loads) + errors} requests failed."
    )
