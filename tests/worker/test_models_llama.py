"""A Llama of one rank computes what transformers computes, in float32, whatever its config."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig

from greedy_run import GreedyRun, generate
from tiny_models import (
    make_tiny_llama,
    random_weights,
    reference_greedy,
    reference_model,
    save_weights,
)
from torpor_protocol.config import EngineConfig, KVCacheSpec
from torpor_protocol.errors import ConfigError, ModelError
from torpor_worker.layers.linear_choice import LinearName
from torpor_worker.loader import load_weights
from torpor_worker.memory.cpu import CpuMemoryPool
from torpor_worker.models import ShardedModel, build_model, get_kv_cache_spec
from torpor_worker.models.registry import ARCHITECTURES, model_class
from torpor_worker.parallel import SingleRank
from worker_configs import LoneRank, engine_config

PROMPTS = [[1, 5, 900, 17, 17, 3], [1], [1, 444, 20, 300, 999, 7, 8, 9, 10, 11, 12]]
STEPS = 8
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}


def load(folder: Path, linear: LinearName | None = None, **changes: Any) -> ShardedModel:
    config = engine_config(folder, **changes)
    groups = SingleRank()
    model = build_model(config, groups, CpuMemoryPool(), linear=linear)
    load_weights(model, config, groups)
    return model


def plain(folder: Path) -> Path:
    return make_tiny_llama(folder)


def tied(folder: Path) -> Path:
    return make_tiny_llama(folder, tie=True, vocab=1003)


def odd(folder: Path) -> Path:
    return make_tiny_llama(folder, heads=9, kv_heads=3, hidden=72, intermediate=90, layers=3)


def scaled(folder: Path) -> Path:
    return make_tiny_llama(folder, rope_scaling=LLAMA3)


def biased(folder: Path) -> Path:
    make_tiny_llama(folder)
    config = LlamaConfig.from_pretrained(folder, attention_bias=True, mlp_bias=True)
    weights = random_weights(config, 0, torch.float32)
    generator = torch.Generator().manual_seed(1)
    for name, tensor in weights.items():
        if name.endswith("bias"):
            tensor.uniform_(-0.5, 0.5, generator=generator)
    save_weights(folder, weights, files=1)
    config.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("linear", ["plain", "packed"])
@pytest.mark.parametrize("make", [plain, tied, odd, scaled, biased])
def test_equals_transformers(
    tmp_path: Path, make: Callable[[Path], Path], linear: LinearName
) -> None:
    folder = make(tmp_path)
    tokens, logits = generate(load(folder, linear), PROMPTS, STEPS)
    assert logits is not None and logits.dtype == torch.float32
    for prompt, found, rows in zip(
        PROMPTS, tokens, logits.split([len(prompt) for prompt in PROMPTS]), strict=True
    ):
        expected, gaps = reference_greedy(folder, prompt, STEPS)
        assert min(gaps) > 1e-3, "the test's own prompt is a near tie"
        assert found == expected
        with torch.inference_mode():
            reference = reference_model(folder)(torch.tensor([prompt])).logits[0]
        torch.testing.assert_close(rows, reference, rtol=1e-4, atol=1e-4)


def test_bfloat16_is_near_float32(tiny_llama: Path) -> None:
    full = GreedyRun(load(tiny_llama), PROMPTS).step()[1]
    half = GreedyRun(load(tiny_llama, dtype="bfloat16"), PROMPTS).step()[1]
    assert full is not None and half is not None and half.dtype == torch.float32
    assert float((full - half).abs().mean()) < 0.05 * float(full.std())


def test_the_incoming_hidden_state_is_left_alone(tiny_llama: Path) -> None:
    groups = LoneRank(1, tp_size=1, pp_size=2)
    config = engine_config(tiny_llama, pipeline=2)
    model = build_model(config, groups, CpuMemoryPool())
    load_weights(model, config, groups)
    hidden = torch.ones((3, 64))
    zeros = torch.zeros((3, 64))
    with torch.inference_mode():
        model(None, torch.arange(3), lambda layer, q, k, v: zeros, hidden)
    assert bool((hidden == 1).all())
    with pytest.raises(ValueError, match="needs the hidden state"):
        model(None, torch.arange(3), lambda layer, q, k, v: zeros, None)


def test_unknown_architecture_names_the_known_ones(tiny_llama: Path) -> None:
    with pytest.raises(ModelError, match=r"'Transformer9' is not supported.*LlamaForCausalLM"):
        model_class("Transformer9")
    assert all(issubclass(model_class(name), ShardedModel) for name in ARCHITECTURES)


def test_heads_that_do_not_split_are_refused(tmp_path: Path) -> None:
    config = engine_config(odd(tmp_path), tensor=2)
    with pytest.raises(ConfigError, match="1, 3, 9"):
        build_model(config, LoneRank(0, tp_size=2), CpuMemoryPool())


def spec_of(config: EngineConfig, rank: int, tp: int, pp: int) -> KVCacheSpec:
    return get_kv_cache_spec(config, LoneRank(rank, tp, pp))


def test_kv_cache_spec(tmp_path: Path) -> None:
    config = engine_config(odd(tmp_path), dtype="bfloat16", block_size=32)
    whole = get_kv_cache_spec(config, SingleRank())
    assert whole == KVCacheSpec(3, 3, 8, 32, "bfloat16", 32 * 3 * 2 * 3 * 8 * 2)
    assert spec_of(config, 0, 9, 1) == KVCacheSpec(3, 1, 8, 32, "bfloat16", 32 * 3 * 2 * 8 * 2)
    assert [spec_of(config, rank, 1, 2).num_layers for rank in (0, 1)] == [2, 1]


def test_only_this_ranks_slice_is_created(tmp_path: Path) -> None:
    folder = make_tiny_llama(tmp_path, vocab=1024, intermediate=130)
    config = engine_config(folder, tensor=4)
    pool = CpuMemoryPool()
    groups = LoneRank(3, tp_size=4)
    load_weights(build_model(config, groups, pool, linear="plain"), config, groups)
    layer = 2 * 64 + 64 * (16 + 2 * 16) + 16 * 64 + 64 * 2 * 33 + 33 * 64
    assert pool.bytes("weights") == 4 * (2 * 256 * 64 + 64 + 2 * layer)
