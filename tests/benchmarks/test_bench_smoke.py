"""Each part once over a real engine with a model of no weight; figures exist, none is judged."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest
from benchmarks import overhead, phases
from benchmarks.phase_map import ENGINE_ORDER, WORKER, WORKER_ORDER
from benchmarks.servers import Served, torpor
from benchmarks.serving import Plan, measure
from benchmarks.serving_table import quiet_line, rate_table


@pytest.fixture(autouse=True)
def the_tiny_model(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread, so that a busy machine does not make two wait for each other."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(phases, "tiny", lambda: tiny_llama)
    monkeypatch.setattr(overhead, "tiny", lambda: tiny_llama)


def test_every_phase_of_a_step_is_seen(tmp_path: Path) -> None:
    size = phases.Size(6, ("float32",), batches=(4,), rounds=2, weightless=True)
    result = phases.run(size, tmp_path)
    assert all(len(rounds) == 2 for rounds in result.values())
    answers = [answer for rounds in result.values() for answer in rounds]
    assert all(answer["step_ms"] > 0 and answer["wall_s"] > 0 for answer in answers)
    layers = result["float32 uni layers 4"][1]["engine"]
    assert layers.keys() == {*ENGINE_ORDER, *WORKER_ORDER, "total"}
    assert all(value > 0 for value in layers.values())
    [_, wired] = result["float32 mp step 4"]
    assert wired["engine"].keys() == {*ENGINE_ORDER, "total"}
    assert wired["worker"].keys() == {*WORKER.values(), "total"}
    assert phases.wire_ms(wired) > 0
    page = phases.text(result)
    assert all(f"\n| {name} | " in page for name in (*ENGINE_ORDER, *WORKER_ORDER))
    assert re.search(r"\*\*step without timers\*\* \| [\d.]+ \([\d.]+–[\d.]+\) \|", page)


def test_over_the_wire_a_rank_times_its_layers_too(tmp_path: Path) -> None:
    size = phases.Size(out=6, batches=(4,), weightless=True)
    with closing(phases._agent(size, "float32", "mp", "layers", tmp_path)) as agent:
        answer = phases._ask(agent, size, 4)
    assert answer["engine"].keys() == {*ENGINE_ORDER, "total"}
    assert answer["worker"].keys() == {*WORKER_ORDER, "total"}
    assert phases.wire_ms(answer) > 0


def test_overhead_is_measured_step_by_step(tmp_path: Path) -> None:
    size = overhead.Size(batches=(2, 4), out=40, rounds=2, peers=False)
    with closing(overhead._ours(size, tmp_path, "step")) as agent:
        steps = overhead._alternate({overhead.OURS: agent, overhead.TIMED: agent}, size)
    # A busy machine may spoil a round; one that is spoilt is not counted.
    found = [(step["round"], step["batch"]) for step in steps]
    assert found and set(found) <= {(0, 2), (0, 4), (1, 2), (1, 4)}
    assert all(step["step_ms"] > 0 for step in steps)
    assert f"| {found[0][1]} |" in overhead.core_table(steps)
    assert "\n| prepare inputs | 0." in overhead.phase_table(steps)


def test_a_step_is_what_many_tokens_take_more_than_one() -> None:
    assert overhead.step_ms(1.0, 1.5, 51) == pytest.approx(10.0)
    assert overhead.step_ms(1.5, 1.0, 51) is None


def test_a_server_is_started_loaded_weighed_and_ended(tiny_llama: Path, tmp_path: Path) -> None:
    served = Served(tiny_llama, "float32", 4, max_model_len=128, kv_bytes=2**24)
    plan = Plan(tiny_llama, {1: 1, 4: 6}, prompt=16, out=5, rounds=2)
    (figures,) = measure([torpor(served)], plan, tmp_path)
    assert [(load["round"], load["streams"], load["ok"]) for load in figures["loads"]] == [
        (0, 1, 1),
        (0, 4, 6),
        (1, 1, 1),
        (1, 4, 6),
    ]
    assert figures["loads"][1]["output_tokens"] == 30
    assert figures["loads"][1]["prompt_tokens"] == 96
    assert figures["pss_mb"] > 10 and figures["ready_s"] > 0
    assert "torpor float32" in rate_table([figures])
    assert "0 of 14 requests failed" in quiet_line([figures])


def test_a_server_that_cannot_start_is_left_out(
    tiny_llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = torpor(Served(tmp_path / "nothing", "float32", 4))
    plan = Plan(tiny_llama, {1: 1}, prompt=16, out=5, rounds=1)
    assert measure([broken], plan, tmp_path) == []
    assert "torpor float32 is left out: it did not become ready" in capsys.readouterr().err
