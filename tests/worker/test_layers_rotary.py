"""The rotary tables and the rotation are transformers', with every scaling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from tiny_models import make_tiny_llama
from torpor_worker.layers.rotary import RotaryEmbedding, rotate
from worker_configs import engine_config

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


@pytest.mark.parametrize("scaling", [None, {"rope_type": "linear", "factor": 3.0}, LLAMA3])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_equals_transformers(tmp_path: Path, scaling: dict[str, Any] | None, dtype: str) -> None:
    folder = make_tiny_llama(tmp_path, rope_scaling=scaling, max_position=4096)
    config = engine_config(folder, max_model_len=4096, dtype=dtype)  # type: ignore[arg-type]
    kind = getattr(torch, dtype)
    positions = torch.tensor([0, 1, 63, 64, 1000, 4095])
    generator = torch.Generator().manual_seed(0)
    q = torch.randn((6, 4, 16), generator=generator).to(kind)
    k = torch.randn((6, 2, 16), generator=generator).to(kind)

    reference = LlamaRotaryEmbedding(LlamaConfig.from_pretrained(folder))
    cos, sin = reference(q, positions.unsqueeze(0))
    expected = apply_rotary_pos_emb(
        q.transpose(0, 1).unsqueeze(0), k.transpose(0, 1).unsqueeze(0), cos, sin
    )
    ours = RotaryEmbedding(config=config, device=torch.device("cpu"))
    tables = ours(positions)
    for heads, wanted in zip((q, k), expected, strict=True):
        tolerance = {"rtol": 0.0, "atol": 2e-6 if dtype == "float32" else 0.05}
        torch.testing.assert_close(rotate(heads, *tables), wanted[0].transpose(0, 1), **tolerance)


def test_the_table_ends_with_the_model_length(tmp_path: Path) -> None:
    config = engine_config(make_tiny_llama(tmp_path), max_model_len=100)
    ours = RotaryEmbedding(config=config, device=torch.device("cpu"))
    assert ours.cos.shape == ours.sin.shape == (100, 8)
    assert not ours.state_dict()
    with pytest.raises(IndexError):
        ours(torch.tensor([100]))
