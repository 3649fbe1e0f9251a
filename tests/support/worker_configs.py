"""The configuration of a worker from a model folder of a test, and groups of one without others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torpor_protocol.config import (
    CacheConfig,
    DType,
    EngineConfig,
    ModelConfig,
    ParallelConfig,
    RopeScaling,
)
from torpor_worker.parallel.groups import SingleRank


def engine_config(
    folder: Path,
    *,
    tensor: int = 1,
    pipeline: int = 1,
    dtype: DType = "float32",
    max_model_len: int = 128,
    block_size: int = 16,
) -> EngineConfig:
    """What the engine would send a rank for the model in ``folder``."""
    raw = json.loads((folder / "config.json").read_text())
    rope = raw["rope_parameters"]
    model = ModelConfig(
        path=str(folder),
        architecture=raw["architectures"][0],
        dtype=dtype,
        max_model_len=max_model_len,
        vocab_size=raw["vocab_size"],
        hidden_size=raw["hidden_size"],
        intermediate_size=raw["intermediate_size"],
        num_layers=raw["num_hidden_layers"],
        num_heads=raw["num_attention_heads"],
        num_kv_heads=raw["num_key_value_heads"],
        head_dim=raw.get("head_dim") or raw["hidden_size"] // raw["num_attention_heads"],
        rms_norm_eps=raw["rms_norm_eps"],
        rope_theta=rope["rope_theta"],
        rope_scaling=_rope_scaling(rope),
        max_position=raw["max_position_embeddings"],
        tie_word_embeddings=raw["tie_word_embeddings"],
        attention_bias=raw["attention_bias"],
        mlp_bias=raw["mlp_bias"],
        eos_token_ids=(raw["eos_token_id"],),
        bos_token_id=raw["bos_token_id"],
    )
    parallel = ParallelConfig(tensor, pipeline)
    return EngineConfig(model, parallel=parallel, cache=CacheConfig(block_size=block_size))


def _rope_scaling(rope: dict[str, Any]) -> RopeScaling:
    return RopeScaling(
        kind=rope["rope_type"],
        factor=rope.get("factor", 1.0),
        low_freq_factor=rope.get("low_freq_factor", 1.0),
        high_freq_factor=rope.get("high_freq_factor", 4.0),
        original_max_position=rope.get("original_max_position_embeddings", 0),
    )


class LoneRank(SingleRank):
    """One rank of a larger world whose others are not there: enough to build and to load."""

    def __init__(self, rank: int, tp_size: int, pp_size: int = 1) -> None:
        super().__init__()
        self.rank, self.tp_size, self.pp_size = rank, tp_size, pp_size
        self.tp_rank, self.pp_rank = rank % tp_size, rank // tp_size
