"""The arithmetic under every table, and what is written where."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.serving_table import rate_table, rates, ratio_table, start_table, time_table
from benchmarks.stats import percentile, ratios, spread
from benchmarks.tables import table, with_section, write_section


def test_a_percentile_lies_between_its_neighbours() -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], 50) == 2.5
    assert percentile([4.0, 1.0, 3.0, 2.0], 100) == 4.0
    assert percentile([1.0, 2.0, 3.0], 99) == pytest.approx(2.98)
    assert percentile([7.0], 99) == 7.0
    assert percentile([], 50) is None


def test_a_spread_has_median_and_ends() -> None:
    found = spread([3.0, 1.0, 8.0])
    assert found is not None
    assert found.text() == "3.0 (1.0–8.0)"
    assert spread([2.0]) is not None and spread([2.0]).text(2) == "2.00"  # type: ignore[union-attr]
    assert spread([]) is None


def test_ratios_are_taken_within_a_round() -> None:
    # The machine slows down to a half in round 1; the ratio does not see it.
    assert ratios({0: 200.0, 1: 100.0, 2: 5.0}, {0: 100.0, 1: 50.0}) == [2.0, 2.0]
    assert ratios({0: 200.0}, {0: 0.0}) == []


def load(round_: int, streams: int, rate: float, errors: int = 0) -> dict[str, object]:
    times = {f"{kind}_{p}": 0.01 for kind in ("ttft", "tpot", "itl") for p in ("p50", "p99")}
    return {"round": round_, "streams": streams, "output_tok_s": rate, "errors": errors, **times}


def server(name: str, ours: bool, *loads: dict[str, object]) -> dict[str, object]:
    figures = {"name": name, "ours": ours, "dtype": "float32", "loads": list(loads)}
    return figures | {"ready_s": 1.5, "pss_mb": 700, "idle_cores": 0.01}


def test_serving_tables_compare_rounds_and_leave_failed_ones_out() -> None:
    ours = server("torpor", True, load(0, 8, 90.0), load(1, 8, 30.0), load(2, 8, 50.0))
    peer = server("peer", False, load(0, 8, 60.0), load(1, 8, 20.0), load(2, 8, 9.0, errors=1))
    assert rates(peer, 8) == {0: 60.0, 1: 20.0}
    assert rate_table([ours, peer]).splitlines()[2:] == [
        "| torpor | 50.0 (30.0–90.0) |",
        "| peer | 40.0 (20.0–60.0) |",
    ]
    assert ratio_table([ours, peer]).splitlines()[2] == "| torpor / peer | 1.50 (1.50–1.50) |"
    assert ratio_table([ours]) == ""
    assert "| torpor | 8 | 10 | 10 |" in time_table([ours]).replace("10.0", "10")
    assert "| torpor | 1.5 | 700 | 0.01 |" in start_table([ours])


def test_a_peer_of_another_type_is_not_compared() -> None:
    peer = server("peer", False, load(0, 8, 60.0)) | {"dtype": "bfloat16"}
    assert ratio_table([server("torpor", True, load(0, 8, 90.0)), peer]) == ""


def test_a_table_escapes_its_separator() -> None:
    assert table(["a", "b"], [["x|y", "1"]]) == "| a | b |\n| --- | ---: |\n| x\\|y | 1 |"


def test_a_section_replaces_itself_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "RESULTS.md"
    page.write_text("# Results\n\nBefore.\n")
    write_section(page, "phases", "old \\1 table")
    page.write_text(page.read_text() + "\nWhat a person thinks of it.\n")
    write_section(page, "serving", "another")
    write_section(page, "phases", "new \\1 table")
    text = page.read_text()
    assert text.startswith("# Results\n\nBefore.\n")
    assert "What a person thinks of it." in text
    assert "new \\1 table" in text and "old" not in text and "another" in text
    assert with_section(text, "phases", "new \\1 table") == text
