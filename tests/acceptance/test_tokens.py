"""Greedy tokens in float32 equal transformers', on every layout and every path."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from generation import assert_tokens, cached_reference, config_of, engine, greedy, sampled
from tiny_models import make_tiny_llama, reference_greedy

LAYOUTS = [(1, 1), (2, 1), (1, 2), (2, 2)]
# Prompts where the two best candidates differ by less than 1e-4 somewhere, by name.
TIES = frozenset({"The answer to the question of life is"})  # SmolLM2, token 60: 1.9e-6

TEXTS = [
    "What is the capital of France?",
    "Photosynthesis is the process by which",
    "Once upon a time, in a village by the sea,",
    "The three laws of thermodynamics are",
    "def fibonacci(n):",
    "A recipe for bread: first,",
    "The hummingbird sleeps at night because",
    "In 1969, the first humans",
    "List the planets of the solar system:",
    "My favourite book is",
    "The quick brown fox",
    "To be, or not to be,",
    "Water boils at",
    "The difference between a virus and a bacterium is",
    "Dear Sir or Madam,",
    "import numpy as np",
    "Kubernetes is",
    "The answer to the question of life is",
    "If it rains tomorrow,",
    "Two trains leave the station at",
]


def tiny_prompts(count: int, seed: int = 0) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(10, 1000) for _ in range(rng.randint(1, 90))] for _ in range(count)]


def check_tiny(folder: Path, tmp_path: Path, count: int = 8, **layout: Any) -> None:
    prompts = tiny_prompts(count)
    with engine(config_of(folder, **layout), tmp_path / "run") as core:
        got = core.generate([greedy(prompt, 24) for prompt in prompts])
    for number, (prompt, tokens) in enumerate(zip(prompts, got, strict=True)):
        reference = reference_greedy(folder, prompt, 24)
        assert_tokens(f"tiny-{number}", folder, prompt, tokens, reference, TIES)


@pytest.mark.parametrize(("tensor", "pipeline"), LAYOUTS)
def test_tiny_layouts(tiny_llama: Path, tmp_path: Path, tensor: int, pipeline: int) -> None:
    check_tiny(tiny_llama, tmp_path, tensor=tensor, pipeline=pipeline)


def test_more_ranks_than_kv_heads(tiny_llama: Path, tmp_path: Path) -> None:
    check_tiny(tiny_llama, tmp_path, tensor=4)


def test_tied_embeddings_and_rope_scaling(tmp_path: Path) -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    folder = make_tiny_llama(tmp_path / "model", tie=True, rope_scaling=scaling, files=3)
    check_tiny(folder, tmp_path, tensor=2)


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("prefix_caching", [True, False])
@pytest.mark.parametrize("runner", ["v2", "reference"])
def test_paths(
    tiny_llama: Path, tmp_path: Path, chunked: bool, prefix_caching: bool, runner: Any
) -> None:
    """Chunks of 24 tokens or whole prompts, a shared beginning that is cached or not."""
    shared = tiny_prompts(1, seed=5)[0] * 3
    prompts = [shared[:60] + prompt[:20] for prompt in tiny_prompts(12, seed=6)]
    config = config_of(
        tiny_llama,
        budget=24 if chunked else 256,
        chunked=chunked,
        prefix_caching=prefix_caching,
        runner=runner,
    )
    with engine(config, tmp_path / "run") as core:
        first = core.generate([greedy(prompt, 16) for prompt in prompts[:2]], together=False)
        rest = core.generate([greedy(prompt, 16) for prompt in prompts[2:]])
        hits = core.core.scheduler.stats().prefix_hits  # type: ignore[union-attr]
    for number, tokens in enumerate(first + rest):
        prompt = prompts[number]
        reference = reference_greedy(tiny_llama, prompt, 16)
        assert_tokens(f"path-{number}", tiny_llama, prompt, tokens, reference, TIES)
    assert (hits > 0) == prefix_caching


def test_forced_preemption(tiny_llama: Path, tmp_path: Path) -> None:
    """A cache of few blocks: requests are preempted and recomputed."""
    config = config_of(tiny_llama, max_model_len=128, blocks_memory=14 * 16 * 2 * 2 * 2 * 16 * 4)
    prompts = tiny_prompts(10, seed=7)
    with engine(config, tmp_path / "run") as core:
        got = core.generate([greedy(prompt, 30) for prompt in prompts])
        assert core.core.scheduler.stats().preemptions > 0  # type: ignore[union-attr]
    for number, (prompt, tokens) in enumerate(zip(prompts, got, strict=True)):
        reference = reference_greedy(tiny_llama, prompt, 30)
        assert_tokens(f"preempted-{number}", tiny_llama, prompt, tokens, reference, TIES)


GREEDY: list[dict[str, Any]] = [{"temperature": 0.0}]
SEEDED: list[dict[str, Any]] = [
    {},
    {"top_k": 20},
    {"top_p": 0.8},
    {"min_p": 0.05, "temperature": 1.3},
    {"presence_penalty": 0.5, "frequency_penalty": 0.5},
    {"repetition_penalty": 1.3},
    {"temperature": 0.0},
    {"logit_bias": {7: 5.0, 9: -5.0}},
]


@pytest.mark.parametrize(
    "features",
    [pytest.param(GREEDY, marks=pytest.mark.slow), SEEDED],
    ids=["greedy", "seeded"],
)
def test_64_together_equal_each_alone(
    tiny_llama: Path, tmp_path: Path, features: list[dict[str, Any]]
) -> None:
    """Requests of mixed lengths: neighbours and chunking change nothing."""
    prompts = tiny_prompts(64, seed=8)

    def requests() -> list[Any]:
        return [
            sampled(prompt, 32 + i % 17, seed=i, **features[i % len(features)])
            for i, prompt in enumerate(prompts)
        ]

    with engine(config_of(tiny_llama, max_num_seqs=64, budget=160), tmp_path / "many") as core:
        together = core.generate(requests())
        assert core.widest == 64
    alone_config = config_of(tiny_llama, max_num_seqs=64, budget=256, prefix_caching=False)
    with engine(alone_config, tmp_path / "one") as core:
        alone = core.generate(requests(), together=False)
    assert together == alone


@pytest.mark.slow
@pytest.mark.real_model
@pytest.mark.parametrize(("tensor", "pipeline"), [(1, 1), (3, 1), (1, 2)])
def test_smollm2(smollm2: Path, tmp_path: Path, tensor: int, pipeline: int) -> None:
    """20 prompts x 64 tokens, all at once, in chunks."""
    check_smollm2(smollm2, tmp_path, TEXTS, 64, tensor=tensor, pipeline=pipeline)


@pytest.mark.real_model
def test_smollm2_in_short(smollm2: Path, tmp_path: Path) -> None:
    check_smollm2(smollm2, tmp_path, TEXTS[:2], 8, tensor=3)


def check_smollm2(
    folder: Path, tmp_path: Path, texts: list[str], max_tokens: int, **layout: Any
) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    prompts = [tokenizer.encode(text).ids for text in texts]
    references = cached_reference(folder, prompts, max_tokens)
    with engine(config_of(folder, budget=48, **layout), tmp_path / "run") as core:
        got = core.generate([greedy(prompt, max_tokens) for prompt in prompts], 600.0)
    for text, prompt, tokens, reference in zip(texts, prompts, got, references, strict=True):
        assert_tokens(text, folder, prompt, tokens, reference, TIES)
