"""While loading, a rank never holds much more than its share of the weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from generation import config_of
from load_peak import LoadPeak
from tiny_models import make_tiny_llama
from torpor_engine.executor.base import ExecutorHooks
from torpor_engine.executor.mp import MpExecutor

SLACK = 0.1


def check_peak(folder: Path, run_dir: Path, tensor: int) -> None:
    """Peak resident memory of each rank, from just before loading until just after."""
    run_dir.mkdir(mode=0o700)
    executor = MpExecutor(config_of(folder, tensor=tensor), ExecutorHooks(run_dir=run_dir))
    try:
        executor.form()
        executor.init_device()
        peaks = [LoadPeak(rank.pid) for rank in executor.rank_states()]
        executor.load_model()
        most = [peak.most() for peak in peaks]
        weights = sum(report.weights for report in executor.memory_report())
    finally:
        executor.shutdown()
    for rank, peak in enumerate(most):
        share = peak / weights
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
