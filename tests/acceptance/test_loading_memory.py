"""While loading, a rank never holds much more than its share of the weights."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from generation import config_of
from tiny_models import make_tiny_llama
from torpor_engine.executor.base import ExecutorHooks
from torpor_engine.executor.mp import MpExecutor

SLACK = 0.1


def status_bytes(pid: int, field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M)
    assert found
    return int(found[1]) * 1024


def check_peak(folder: Path, run_dir: Path, tensor: int) -> None:
    """Peak resident memory of each rank, from just before loading until just after."""
    run_dir.mkdir(mode=0o700)
    executor = MpExecutor(config_of(folder, tensor=tensor), ExecutorHooks(run_dir=run_dir))
    try:
        executor.form()
        executor.init_device()
        pids = [rank.pid for rank in executor.rank_states()]
        before = [status_bytes(pid, "VmRSS") for pid in pids]
        for pid in pids:
            Path(f"/proc/{pid}/clear_refs").write_text("5")
        executor.load_model()
        peaks = [status_bytes(pid, "VmHWM") for pid in pids]
        weights = sum(report.weights for report in executor.memory_report())
    finally:
        executor.shutdown()
    for rank, (start, peak) in enumerate(zip(before, peaks, strict=True)):
        share = (peak - start) / weights
        print(f"\nrank {rank} of {tensor}: {share:.3f} of {weights / 2**20:.0f} MiB")
        assert share <= 1 / tensor + SLACK


@pytest.mark.real_model
def test_smollm2_on_three_ranks(smollm2: Path, tmp_path: Path) -> None:
    check_peak(smollm2, tmp_path / "run", tensor=3)


@pytest.mark.slow
def test_a_gigabyte_in_several_files_on_two_ranks(tmp_path: Path) -> None:
    folder = make_tiny_llama(
        tmp_path / "model",
        heads=16,
        kv_heads=8,
        hidden=1024,
        layers=16,
        intermediate=2816,
        vocab=32_000,
        files=5,
    )
    assert sum(file.stat().st_size for file in folder.glob("*.safetensors")) > 10**9
    check_peak(folder, tmp_path / "run", tensor=2)
