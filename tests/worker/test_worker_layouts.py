"""Whole workers in groups of processes: every layout gives transformers' tokens, on every rank."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rank_host import RankHost
from tiny_models import make_tiny_llama, reference_greedy

MAX_TOKENS = 12


@pytest.fixture(scope="module")
def host() -> Iterator[RankHost]:
    with RankHost() as running:
        yield running


@pytest.mark.parametrize(
    ("tensor", "pipeline", "level"), [(2, 1, 0), (1, 2, 2), (2, 2, 1), (4, 1, 2)]
)
def test_tokens_on_every_rank(
    host: RankHost, tmp_path: Path, tensor: int, pipeline: int, level: int
) -> None:
    """With four ranks and two KV heads, pairs of ranks hold the same KV head."""
    model = make_tiny_llama(tmp_path / "model")
    rng = np.random.default_rng(1)
    prompts = [rng.integers(0, 1024, length).tolist() for length in (3, 30, 1, 11)]
    made = [reference_greedy(model, prompt, MAX_TOKENS) for prompt in prompts]
    assert min(min(gaps) for _, gaps in made) > 1e-4, "a tie would test rounding"
    statuses = host.run(
        "worker_jobs:greedy_tokens",
        tensor * pipeline,
        tmp_path,
        model=str(model),
        tensor=tensor,
        pipeline=pipeline,
        prompts=prompts,
        max_tokens=MAX_TOKENS,
        level=level,
    )
    assert statuses == [0] * (tensor * pipeline)
    for rank in range(tensor * pipeline):
        outputs = json.loads((tmp_path / f"rank-{rank}.json").read_text())
        assert outputs == [tokens for tokens, _ in made]
