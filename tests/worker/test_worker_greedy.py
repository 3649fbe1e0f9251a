"""Tokens of a worker equal transformers' tokens: chunked prompts, mixed batches, both runners."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from runner_cases import small_config
from step_maker import StepMaker, generate, greedy
from tiny_models import reference_greedy
from worker_cases import started

LENGTHS = (1, 2, 5, 16, 17, 33, 50)
MAX_TOKENS = 24
BLOCKS = 200


def prompts() -> list[list[int]]:
    rng = np.random.default_rng(3)
    return [rng.integers(0, 1024, length).tolist() for length in LENGTHS]


@pytest.fixture(scope="module")
def expected(tiny_llama: Path) -> list[list[int]]:
    made = [reference_greedy(tiny_llama, prompt, MAX_TOKENS) for prompt in prompts()]
    assert min(min(gaps) for _, gaps in made) > 1e-4, "a tie would test rounding"
    return [tokens for tokens, _ in made]


@pytest.mark.parametrize("runner", ["v2", "reference"])
@pytest.mark.parametrize(("rows", "chunk"), [(1, 48), (4, 48), (4, 7), (8, 3)])
def test_equals_transformers(
    tiny_llama: Path, expected: list[list[int]], runner: str, rows: int, chunk: int
) -> None:
    config = msgspec.structs.replace(small_config(tiny_llama, rows=rows), runner=runner)
    worker = started(config, BLOCKS)
    maker = StepMaker(rows, BLOCKS, config.cache.block_size)
    requests = [(prompt, greedy(MAX_TOKENS)) for prompt in prompts()]
    assert generate(worker, maker, requests, budget=48, chunk=chunk) == expected
    worker.shutdown()
