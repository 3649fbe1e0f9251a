"""Loading needs little more memory than what it leaves, and sleep gives all of that back."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors import safe_open

from rank_host import RankHost
from tiny_models import make_tiny_llama

FLOAT32 = 4
# Freed heap that the C library keeps, kernels that oneDNN generated.
LEFT = 24 * 2**20


@pytest.fixture(scope="module")
def host() -> Iterator[RankHost]:
    with RankHost() as host:
        yield host


def float32_bytes(model: Path) -> int:
    """Bytes of all weights of a checkpoint when they run in float32."""
    total = 0
    for file in model.glob("*.safetensors"):
        with safe_open(file, framework="pt") as opened:
            shapes = [opened.get_slice(name).get_shape() for name in opened.keys()]  # noqa: SIM118
            total += sum(math.prod(shape) for shape in shapes) * FLOAT32
    return total


def check(host: RankHost, model: Path, folder: Path, tensor: int) -> None:
    """Peak <= baseline + (1 / tp + 0.1) x weights, for every rank, at start and at wake-up."""
    weights = float32_bytes(model)
    for rank in range(tensor):
        arguments = {"model": str(model), "tensor": tensor, "index": rank}
        assert host.run("rank_jobs:measure_load", 1, folder, **arguments) == [0]
        result = json.loads((folder / "memory.json").read_text())
        assert result["weights"] < weights * 1.01 / tensor
        for peak in result["peaks"]:
            assert weights / tensor * 0.9 < peak <= (1 / tensor + 0.1) * weights, result
        assert result["left"] <= LEFT


@pytest.mark.parametrize("tensor", [1, 2])
def test_several_files(host: RankHost, tmp_path: Path, tensor: int) -> None:
    """260 MB in float32, 130 MB in the files."""
    model = make_tiny_llama(
        tmp_path / "model",
        heads=12,
        kv_heads=6,
        hidden=768,
        layers=8,
        intermediate=2048,
        vocab=8192,
        files=4,
        dtype="bfloat16",
    )
    check(host, model, tmp_path, tensor)


@pytest.mark.real_model
@pytest.mark.parametrize("tensor", [1, 3])
def test_smollm2(host: RankHost, smollm2: Path, tmp_path: Path, tensor: int) -> None:
    check(host, smollm2, tmp_path, tensor)
