"""Builders of configurations and messages for engine tests."""

from __future__ import annotations

from typing import Any

from torpor_protocol.config import (
    CacheConfig,
    EngineConfig,
    ModelConfig,
    ParallelConfig,
    RecoveryConfig,
    RopeScaling,
    SchedulerConfig,
    WakeConfig,
)


def model_config(**changes: Any) -> ModelConfig:
    fields: dict[str, Any] = {
        "path": "/models/tiny",
        "architecture": "LlamaForCausalLM",
        "dtype": "float32",
        "max_model_len": 128,
        "vocab_size": 1024,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_layers": 2,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 16,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
        "rope_scaling": RopeScaling(),
        "max_position": 512,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "eos_token_ids": (2,),
        "bos_token_id": 1,
    }
    return ModelConfig(**(fields | changes))


def engine_config(
    *,
    tensor: int = 1,
    pipeline: int = 1,
    max_num_seqs: int = 8,
    max_num_batched_tokens: int = 64,
    block_size: int = 4,
    recovery: RecoveryConfig | None = None,
    wake: WakeConfig | None = None,
    model: dict[str, Any] | None = None,
    **changes: Any,
) -> EngineConfig:
    return EngineConfig(
        model=model_config(**(model or {})),
        parallel=ParallelConfig(tensor, pipeline),
        cache=CacheConfig(block_size=block_size),
        scheduler=SchedulerConfig(
            max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens
        ),
        wake=wake or WakeConfig(canary_prompt=(5, 6, 7), canary_tokens=2),
        recovery=recovery or RecoveryConfig(backoff_seconds=0.0),
        **changes,
    )
