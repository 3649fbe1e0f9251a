"""Start-up of one rank: order, memory, profile, warm-up, and the choice of runner and attention."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import numpy as np
import pytest

from engine_builders import engine_config as plain_config
from runner_cases import small_config
from torpor_protocol.config import KVCacheSpec, SchedulerConfig
from torpor_protocol.errors import TorporError
from torpor_protocol.methods import MethodTable
from torpor_worker.attention.select import choose_attention
from torpor_worker.memory_budget import CPU_SHARE, kv_cache_bytes, useful_bytes
from torpor_worker.runner.select import choose_runner
from torpor_worker.runner.states import RowLimits
from torpor_worker.runner.warmup import (
    CPU_PROFILE_TOKENS,
    blocks_for,
    largest_batch,
    profile_limits,
)
from torpor_worker.worker import Worker
from worker_cases import lone_assignment, started

SPEC = KVCacheSpec(
    num_layers=2, num_kv_heads=2, head_dim=16, block_size=4, dtype="float32", page_bytes=1000
)


def test_the_engine_can_call_these() -> None:
    assert MethodTable(Worker).names == {
        "init_device",
        "load_model",
        "get_kv_cache_specs",
        "determine_available_memory",
        "profile_seconds",
        "initialize_cache",
        "compile_or_warm_up_model",
        "execute_model",
        "sample_tokens",
        "sleep",
        "wake_up",
        "memory_report",
        "reset",
    }


def test_start_up_leaves_nothing_behind(tiny_llama: Path) -> None:
    told: list[tuple[int, int, int, int]] = []
    worker = started(small_config(tiny_llama), 64, lambda *numbers: told.append(numbers))
    tensors, total, done, size = told[-1]
    assert tensors == total > 10 and done == size > 100_000
    assert worker.profile_seconds() > 0
    states = worker._running().states  # type: ignore[attr-defined]
    assert not states.active.any()
    assert (states.generation == -1).all()
    report = worker.memory_report()
    assert report.kv_cache == 64 * worker.get_kv_cache_specs().page_bytes
    assert report.weights >= size and report.resident > report.weights
    worker.shutdown()


def test_methods_come_in_order(tiny_llama: Path) -> None:
    worker = Worker(small_config(tiny_llama), lone_assignment())
    with pytest.raises(TorporError, match="init_device"):
        worker.load_model()
    worker.init_device()
    with pytest.raises(TorporError, match="load_model"):
        worker.initialize_cache(9)
    worker.load_model()
    with pytest.raises(TorporError, match="initialize_cache"):
        worker.compile_or_warm_up_model()
    worker.shutdown()
    worker.shutdown()


def test_the_smallest_engine_starts(tiny_llama: Path) -> None:
    """One row, one block of cache beside the null block, one token per step."""
    config = small_config(tiny_llama, rows=1, budget=1)
    model = msgspec.structs.replace(config.model, max_model_len=2)
    worker = started(msgspec.structs.replace(config, model=model), num_blocks=2)
    worker.shutdown()


@pytest.mark.parametrize("runner", ["v2", "reference"])
def test_the_log_says_which_runner_and_why(
    tiny_llama: Path, runner: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = msgspec.structs.replace(small_config(tiny_llama), runner=runner)
    worker = Worker(config, lone_assignment())
    with caplog.at_level(logging.INFO, "torpor_worker.worker"):
        worker.init_device()
    lines = [line for line in caplog.messages if f"runner {runner}, because " in line]
    assert len(lines) == 1
    worker.shutdown()


CHOICES = [
    ("v2", "cpu", False, "v2", "cpu"),
    ("v2", "cpu", True, "v2", "cpu"),
    ("v2", "cuda", True, "v2", "triton"),
    ("v2", "cuda", False, "reference", "reference"),
    ("reference", "cpu", True, "reference", "reference"),
    ("reference", "cuda", True, "reference", "reference"),
]


@pytest.mark.parametrize(("wanted", "device", "triton", "runner", "attention"), CHOICES)
def test_choices(wanted: str, device: str, triton: bool, runner: str, attention: str) -> None:
    choice = choose_runner(wanted, device, triton)
    assert (choice.name, choose_attention(choice.name, device)) == (runner, attention)
    assert choice.reason


def test_budget_of_the_cache() -> None:
    config = plain_config(max_num_seqs=8, model={"max_model_len": 10})
    useful = (8 * 3 + 1) * 1000
    assert useful_bytes(config, SPEC) == useful
    assert kv_cache_bytes(config, SPEC, 10**9, 1, "cpu") == useful
    assert kv_cache_bytes(config, SPEC, 30_000, 3, "cpu") == int(30_000 * CPU_SHARE / 3)
    assert kv_cache_bytes(config, SPEC, 10_000, 3, "cuda") == 9000
    fixed = msgspec.structs.replace(
        config, cache=msgspec.structs.replace(config.cache, kv_cache_memory=77)
    )
    assert kv_cache_bytes(fixed, SPEC, 10**9, 1, "cpu") == 77


def test_a_cpu_profiles_a_part_of_the_largest_batch() -> None:
    limits = RowLimits(64, 512, 2048, 16, 1024)
    assert profile_limits(limits, "cuda") is limits
    assert profile_limits(limits, "cpu").max_num_batched_tokens == CPU_PROFILE_TOKENS
    small = RowLimits(4, 512, 64, 16, 1024)
    assert profile_limits(small, "cpu") == small


@pytest.mark.parametrize(
    ("rows", "budget", "longest", "expected"),
    [
        (4, 16, 128, [4, 4, 4, 4]),
        (4, 18, 128, [4, 4, 5, 5]),
        (4, 3, 128, [1, 1, 1]),
        (2, 100, 30, [30, 30]),
        (4, 5, 9, [1, 1, 1, 2]),
    ],
)
def test_largest_batch(rows: int, budget: int, longest: int, expected: list[int]) -> None:
    limits = RowLimits(rows, longest, budget, 4, 1024)
    lengths = largest_batch(limits)
    assert lengths.tolist() == expected
    assert (np.diff(lengths == 1) <= 0).all() or expected[0] == 1
    assert blocks_for(lengths, limits) == 1 + sum(-(-length // 4) for length in expected)


def test_limits_follow_the_configuration(tiny_llama: Path) -> None:
    config = msgspec.structs.replace(small_config(tiny_llama), scheduler=SchedulerConfig(3, 20))
    worker = started(config, 64)
    limits = worker._running().states.limits  # type: ignore[attr-defined]
    assert limits == RowLimits(3, 128, 20, 4, 1024)
    worker.shutdown()
