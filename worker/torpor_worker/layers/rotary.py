"""Rotary position embedding, with the scalings of the Llama family.

Sine and cosine of every position up to ``max_model_len`` are computed once, in float32 as
transformers does. They are not weights: sleep does not touch them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from torpor_protocol.config import EngineConfig, ModelConfig
from torpor_worker.platforms.base import torch_dtype


def inverse_frequencies(model: ModelConfig) -> Tensor:
    """[head_dim / 2] float32: radians per position of each pair of dimensions."""
    even = torch.arange(0, model.head_dim, 2, dtype=torch.int64).float()
    plain = 1.0 / (model.rope_theta ** (even / model.head_dim))
    scaling = model.rope_scaling
    if scaling.kind == "linear":
        return plain / scaling.factor
    if scaling.kind == "llama3":
        # Long waves are slowed by the factor, short ones kept, those between blended.
        turns = scaling.original_max_position / (2 * math.pi / plain)
        low, high = scaling.low_freq_factor, scaling.high_freq_factor
        keep = ((turns - low) / (high - low)).clamp(0, 1)
        return (1 - keep) * plain / scaling.factor + keep * plain
    return plain


class RotaryEmbedding(nn.Module):
    """The tables; one per model."""

    cos: Tensor
    sin: Tensor

    def __init__(self, *, config: EngineConfig, device: torch.device) -> None:
        super().__init__()
        model = config.model
        positions = torch.arange(model.max_model_len, dtype=torch.float32)
        angles = torch.outer(positions, inverse_frequencies(model))
        dtype = torch_dtype(model.dtype)
        self.register_buffer("cos", angles.cos().to(device, dtype), persistent=False)
        self.register_buffer("sin", angles.sin().to(device, dtype), persistent=False)

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """[n] int64 -> two [n, 1, head_dim] for ``rotate``, once per step for all layers."""
        cos, sin = self.cos[positions], self.sin[positions]
        both = torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)
        return both[0].unsqueeze(1), both[1].unsqueeze(1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [n, heads, head_dim] -> the same shape, new and contiguous.

    The pairs are (i, i + head_dim / 2), as in transformers; the sign of the sine's first half is in
    the table, so that swapping the halves is all that is left to do.
    """
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)
