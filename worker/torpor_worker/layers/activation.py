"""Gated activation of the feed-forward block."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def silu_and_mul(x: Tensor) -> Tensor:
    """[n, 2 m] (gate, then up) -> [n, m]: silu(gate) * up."""
    half = x.shape[-1] // 2
    return F.silu(x[..., :half]).mul_(x[..., half:])
