"""Which parallel layouts a model allows: pure arithmetic, with sentences that name the choices."""

from __future__ import annotations

from torpor_protocol.config import ModelConfig, ParallelConfig
from torpor_protocol.errors import ConfigError


def tensor_sizes(model: ModelConfig) -> list[int]:
    """Tensor-parallel sizes that give every rank whole query heads, and whole or replicated KV
    heads. Other dimensions are padded, so they set no limit."""
    heads, kv_heads = model.num_heads, model.num_kv_heads
    return [
        size
        for size in range(1, heads + 1)
        if heads % size == 0 and (kv_heads % size == 0 or size % kv_heads == 0)
    ]


def check_parallel(model: ModelConfig, parallel: ParallelConfig) -> None:
    """Raises ConfigError naming the sizes that would do."""
    sizes = tensor_sizes(model)
    if parallel.tensor not in sizes:
        raise ConfigError(
            f"Tensor parallel size {parallel.tensor} does not divide the model's "
            f"{model.num_heads} heads and {model.num_kv_heads} KV heads.",
            f"Use --tensor {_listed(sizes)}.",
        )
    if parallel.pipeline > model.num_layers:
        raise ConfigError(
            f"Pipeline size {parallel.pipeline} exceeds the model's {model.num_layers} layers.",
            f"Use --pipeline from 1 to {model.num_layers}.",
        )


def _listed(sizes: list[int]) -> str:
    texts = [str(size) for size in sizes]
    if len(texts) == 1:
        return texts[0]
    return f"{', '.join(texts[:-1])} or {texts[-1]}"
