"""Sleep and wake of one rank: memory that really falls, tokens that are the same, no surprises."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from runner_cases import small_config
from step_maker import StepMaker, generate, greedy
from tiny_models import make_tiny_llama
from torpor_protocol.errors import ConfigError, ModelError, TorporError
from torpor_worker.sleeper import Sleeper, WorkerAsleep
from torpor_worker.worker import Worker
from worker_cases import started

MIB = 2**20
BLOCKS = 4000
PROMPTS = [[5, 6, 7, 8], list(range(100, 130))]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some 30 MB of weights, so that a fall can be seen."""
    folder = tmp_path_factory.mktemp("medium")
    return make_tiny_llama(folder, hidden=256, layers=4, intermediate=1024, vocab=4096)


@pytest.fixture
def folder(source: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(source, tmp_path / "model"))


@pytest.fixture
def worker(folder: Path) -> Iterator[Worker]:
    made = started(small_config(folder), BLOCKS)
    yield made
    made.shutdown()


def tokens_of(worker: Worker) -> list[list[int]]:
    worker.reset()
    requests = [(prompt, greedy(8)) for prompt in PROMPTS]
    return generate(worker, StepMaker(4, BLOCKS, 4), requests, budget=48, chunk=16)


@pytest.mark.parametrize("level", [1, 2])
def test_memory_falls_and_tokens_stay(worker: Worker, level: int) -> None:
    before, awake = tokens_of(worker), worker.memory_report()
    assert awake.kv_cache >= 20 * MIB and awake.weights >= 20 * MIB
    asleep = worker.sleep(level)
    wanted = awake.kv_cache + (awake.weights if level == 2 else 0)
    assert asleep.freed >= wanted
    assert awake.resident - asleep.resident > 0.95 * wanted
    assert asleep.kv_cache == 0
    assert asleep.weights == (0 if level == 2 else awake.weights)
    woken = worker.wake_up([])
    assert (woken.weights, woken.kv_cache) == (awake.weights, awake.kv_cache)
    assert woken.resident - asleep.resident > 0.95 * wanted
    assert tokens_of(worker) == before


@pytest.mark.parametrize("level", [1, 2])
def test_a_rank_that_sleeps_refuses_work(worker: Worker, level: int) -> None:
    worker.sleep(level)
    with pytest.raises(WorkerAsleep, match="kv_cache and weights"):
        tokens_of(worker)
    worker.wake_up(["weights"])
    with pytest.raises(WorkerAsleep, match="kv_cache are released"):
        tokens_of(worker)
    worker.wake_up(["kv_cache"])
    assert len(tokens_of(worker)) == len(PROMPTS)


@pytest.mark.parametrize("levels", [(1, 1), (2, 2), (1, 2), (2, 1)])
def test_sleeping_twice_and_waking_twice_is_harmless(
    worker: Worker, levels: tuple[int, int]
) -> None:
    before = tokens_of(worker)
    reports = [worker.sleep(level) for level in levels]
    if levels[0] == levels[1]:
        assert reports[1].freed == 0
    assert worker.memory_report().weights == (0 if 2 in levels else reports[0].weights)
    for _ in range(2):
        worker.wake_up([])
    assert tokens_of(worker) == before


def test_waking_a_rank_that_is_awake_does_nothing(worker: Worker) -> None:
    before = tokens_of(worker)
    worker.wake_up([])
    assert tokens_of(worker) == before


def test_weights_that_are_not_the_same_are_refused(worker: Worker, folder: Path) -> None:
    """And the rank stays asleep until they are."""
    before = tokens_of(worker)
    path = folder / "model.safetensors"
    original = path.read_bytes()
    weights = load_file(path)
    weights["model.norm.weight"][3] += 1.0
    worker.sleep(2)
    save_file(weights, path, {"format": "pt"})
    for _ in range(2):
        with pytest.raises(ModelError, match=r"model\.norm|norm"):
            worker.wake_up([])
        with pytest.raises(WorkerAsleep):
            tokens_of(worker)
    path.write_bytes(original)
    worker.wake_up([])
    assert tokens_of(worker) == before


def test_weights_that_are_gone_are_named(worker: Worker, folder: Path) -> None:
    before = tokens_of(worker)
    worker.sleep(2)
    (folder / "model.safetensors").rename(folder / "hidden")
    with pytest.raises(TorporError) as refused:
        worker.wake_up([])
    assert str(folder) in refused.value.cause
    (folder / "hidden").rename(folder / "model.safetensors")
    worker.wake_up([])
    assert tokens_of(worker) == before


@pytest.mark.parametrize("level", [0, 3, -1])
def test_other_levels_are_not_the_workers(worker: Worker, level: int) -> None:
    with pytest.raises(ConfigError, match="level"):
        worker.sleep(level)
    assert len(tokens_of(worker)) == len(PROMPTS)


def test_an_unknown_tag_is_refused(worker: Worker) -> None:
    worker.sleep(1)
    with pytest.raises(ConfigError, match="kv_cash"):
        worker.wake_up(["weights", "kv_cash"])
    assert worker.memory_report().kv_cache == 0


def test_many_cycles_do_not_grow(worker: Worker) -> None:
    before = tokens_of(worker)
    sizes = []
    for cycle in range(8):
        worker.sleep(1 + cycle % 2)
        worker.wake_up([])
        assert tokens_of(worker) == before
        sizes.append(worker.memory_report().resident)
    assert max(sizes[3:]) - min(sizes[3:]) < 4 * MIB


def test_buffers_survive(worker: Worker) -> None:
    """Level 2 drops weights, not what follows from the configuration."""
    model = worker._ready().model
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    assert before
    worker.sleep(2)
    worker.wake_up([])
    after = dict(model.named_buffers())
    assert all(torch.equal(buffer, after[name]) for name, buffer in before.items())


class FakePool:
    """Counts what an accelerator's pool would be told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, bool]] = []

    def release(self, tag: str, *, keep: bool = False) -> int:
        self.calls.append(("release", tag, keep))
        return 100

    def restore(self, tag: str) -> int:
        self.calls.append(("restore", tag, False))
        return 100


def test_level_one_keeps_contents_and_never_reloads() -> None:
    pool, loads, clears = FakePool(), [], []
    sleeper = Sleeper(
        pool,  # type: ignore[arg-type]
        lambda: loads.append(1),
        lambda: clears.append(1),
    )
    assert sleeper.sleep(1) == 200
    sleeper.wake_up(["kv_cache"])
    assert (sleeper.asleep, loads, clears) == ({"weights"}, [], [1])
    sleeper.wake_up(["weights"])
    assert ("release", "weights", True) in pool.calls and not loads
    sleeper.sleep(1)
    sleeper.sleep(2)
    sleeper.wake_up([])
    assert ("release", "weights", False) in pool.calls and loads == [1]
    sleeper.check_awake()
