"""The runner against the reference runner, on random traces of everything a scheduler may do."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest

from runner_cases import BUDGET, loaded_model, maker_of, runner_of, small_config
from step_maker import Running, StepMaker
from torpor_protocol.arrays import unpack_i32
from torpor_protocol.config import EngineConfig
from torpor_protocol.requests import SamplingParams
from torpor_protocol.steps import ModelRunnerOutput
from torpor_worker.attention.base import AttentionBackend, AttentionBatch, LayerRun
from torpor_worker.models.base import ShardedModel
from torpor_worker.runner.interface import Runner

VOCAB = 1024


@pytest.fixture(scope="module")
def config(tiny_llama: Path) -> EngineConfig:
    return small_config(tiny_llama)


@pytest.fixture(scope="module")
def model(config: EngineConfig) -> ShardedModel:
    return loaded_model(config)


def any_sampling(rng: random.Random) -> SamplingParams:
    """Greedy half of the time; otherwise some features."""
    if rng.random() < 0.5:
        return SamplingParams(max_tokens=100, seed=0, temperature=0.0)
    return SamplingParams(
        max_tokens=100,
        seed=rng.getrandbits(64),
        temperature=rng.choice([0.0, 0.5, 1.0]),
        top_k=rng.choice([0, 0, 5]),
        top_p=rng.choice([1.0, 0.8]),
        min_p=rng.choice([0.0, 0.05]),
        repetition_penalty=rng.choice([1.0, 1.3]),
        presence_penalty=rng.choice([0.0, 0.7]),
        logit_bias=rng.choice([{}, {7: 3.0, 9: -3.0}]),
        min_tokens=rng.choice([0, 3]),
        logprobs=rng.choice([-1, 0, 4]),
    )


def anything(maker: StepMaker, rng: random.Random) -> None:
    """Requests leave, come back with their output (preemption), join, and share prefixes."""
    for request in list(maker.running.values()):
        if len(request.tokens) > 60 or rng.random() < 0.08:
            maker.leave(request)
            if len(request.tokens) <= 60 and rng.random() < 0.5:
                prompt = request.tokens[: request.prompt_len]
                maker.join(prompt, request.sampling, request.output)
    while maker.free_rows and rng.random() < 0.5:
        donors = [other for other in maker.running.values() if other.known]
        if donors and rng.random() < 0.4:
            donor = rng.choice(donors)
            shared = rng.randrange(0, min(donor.computed, len(donor.tokens) - 1) + 1)
            prompt = donor.tokens[:shared] + [rng.randrange(VOCAB) for _ in range(1 + shared % 3)]
            maker.join(prompt, any_sampling(rng), shared_from=donor, shared_tokens=shared)
        else:
            prompt = [rng.randrange(VOCAB) for _ in range(rng.choice([1, 2, 5, 17, 40]))]
            maker.join(prompt, any_sampling(rng))


def some_rows(maker: StepMaker, rng: random.Random) -> dict[int, int]:
    """Any rows, each with all or a part of what it has to compute."""
    counts: dict[int, int] = {}
    left = BUDGET
    for row, request in maker.running.items():
        count = min(request.pending, left)
        if count and rng.random() < 0.9:
            counts[row] = rng.randint(1, count) if rng.random() < 0.3 else count
            left -= counts[row]
    return counts


def assert_same(ours: ModelRunnerOutput, theirs: ModelRunnerOutput) -> None:
    assert (ours.step, ours.rows, ours.tokens) == (theirs.step, theirs.rows, theirs.tokens)
    assert len(ours.logprobs) == len(theirs.logprobs)
    for our, their in zip(ours.logprobs, theirs.logprobs, strict=True):
        assert (our.row, our.token, our.rank) == (their.row, their.token, their.rank)
        assert our.logprob == pytest.approx(their.logprob, abs=1e-3)
        assert unpack_i32(our.top_ids).tolist() == unpack_i32(their.top_ids).tolist()
        assert our.top_logprobs == pytest.approx(their.top_logprobs, abs=1e-3)


class Watched:
    """An attention backend that shows what it was told last."""

    def __init__(self, backend: AttentionBackend) -> None:
        self._backend = backend
        self.batch: AttentionBatch | None = None

    def plan(self, batch: AttentionBatch) -> LayerRun:
        self.batch = batch
        return self._backend.plan(batch)


def watched(runner: Runner) -> Watched:
    parts = runner._parts  # type: ignore[attr-defined]
    watch = Watched(parts.attention)
    runner._parts = dataclasses.replace(parts, attention=watch)  # type: ignore[attr-defined]
    return watch


def assert_same_batch(ours: AttentionBatch, theirs: AttentionBatch, block_size: int) -> None:
    assert ours.num_decodes == theirs.num_decodes
    for name in ("query_lens", "seq_lens", "query_start", "slot_mapping"):
        assert getattr(ours, name).tolist() == getattr(theirs, name).tolist(), name
    for length, our, their in zip(
        ours.seq_lens.tolist(), ours.block_tables, theirs.block_tables, strict=True
    ):
        own = -(-length // block_size)
        assert our[:own].tolist() == their[:own].tolist()


@pytest.mark.parametrize("seed", range(6))
def test_random_traces(config: EngineConfig, model: ShardedModel, seed: int) -> None:
    rng = random.Random(seed)
    maker = maker_of(config)
    ours = runner_of(config, model)
    theirs = runner_of(config, model, "reference", "reference")
    watches = watched(ours), watched(theirs)
    seen: list[Running] = []
    for _ in range(40):
        anything(maker, rng)
        step = maker.step(some_rows(maker, rng))
        seen += [request for request in maker.running.values() if request not in seen]
        outputs = []
        for runner in (ours, theirs):
            runner.execute_model(step)
            outputs.append(runner.sample_tokens())
        assert outputs[0] is not None and outputs[1] is not None
        assert_same(outputs[0], outputs[1])
        if step.rows:
            batches = [watch.batch for watch in watches]
            assert batches[0] is not None and batches[1] is not None
            assert_same_batch(batches[0], batches[1], maker.block_size)
        maker.take(outputs[0])
    assert sum(len(request.output) for request in seen) > 40
