"""The same tokens and logits on every layout of ranks, as real processes over gloo."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rank_host import RankHost
from tiny_models import make_tiny_llama, reference_greedy, reference_model

PROMPTS = [[1, 5, 900, 17, 17, 3], [1, 444, 20, 300, 999, 7, 8, 9, 10, 11, 12]]
STEPS = 6


@pytest.fixture(scope="module")
def host() -> Iterator[RankHost]:
    with RankHost() as host:
        yield host


@pytest.fixture(scope="module")
def even(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """4 heads and 2 KV heads: 4 ranks have more than one holder of each KV head."""
    return make_tiny_llama(tmp_path_factory.mktemp("even"), layers=3)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """9 heads and 3 KV heads, tied, and neither vocabulary nor intermediate size divides."""
    folder = tmp_path_factory.mktemp("odd")
    return make_tiny_llama(
        folder, heads=9, kv_heads=3, hidden=72, intermediate=100, vocab=1003, tie=True
    )


def check(
    host: RankHost, model: Path, folder: Path, tensor: int, pipeline: int, linear: str | None
) -> None:
    """Run the layout and compare with transformers."""
    world = tensor * pipeline
    statuses = host.run(
        "rank_jobs:generate_tokens",
        world,
        folder,
        model=str(model),
        tensor=tensor,
        pipeline=pipeline,
        linear=linear,
        prompts=PROMPTS,
        steps=STEPS,
    )
    assert statuses == [0] * world
    expected = []
    for prompt in PROMPTS:
        tokens, gaps = reference_greedy(model, prompt, STEPS)
        assert min(gaps) > 1e-3, "the test's own prompt is a near tie"
        expected.append(tokens)
    for rank in range(world):
        assert json.loads((folder / f"tokens-{rank}.json").read_text()) == expected
    logits = load_file(folder / "logits.safetensors")["logits"]
    for prompt, rows in zip(PROMPTS, logits.split([len(p) for p in PROMPTS]), strict=True):
        with torch.inference_mode():
            reference = reference_model(model)(torch.tensor([prompt])).logits[0]
        torch.testing.assert_close(rows, reference, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("tensor", "pipeline"), [(2, 1), (1, 2), (2, 2), (4, 1)])
def test_even(host: RankHost, even: Path, tmp_path: Path, tensor: int, pipeline: int) -> None:
    check(host, even, tmp_path, tensor, pipeline, None)


@pytest.mark.parametrize(("tensor", "pipeline"), [(3, 1), (9, 1), (3, 2)])
def test_odd(host: RankHost, odd: Path, tmp_path: Path, tensor: int, pipeline: int) -> None:
    check(host, odd, tmp_path, tensor, pipeline, "packed")
