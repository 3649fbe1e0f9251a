"""The simplest attention that a model can be run with: whole sequences, no pages.

It stands in for the runner's object where a test is about the model alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


class PlainAttention:
    """Causal attention of several sequences; each keeps its keys and values by layer.

    ``lengths`` says how many of the step's tokens belong to each sequence, in order; set it before
    every step.
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        self.lengths = list(lengths)
        self._kept: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        parts = [torch.split(tensor, self.lengths) for tensor in (q, k, v)]
        outputs = [
            self._attend(layer, sequence, *tensors)
            for sequence, tensors in enumerate(zip(*parts, strict=True))
        ]
        return torch.cat(outputs)

    def _attend(self, layer: int, sequence: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if (layer, sequence) in self._kept:
            old_k, old_v = self._kept[layer, sequence]
            k, v = torch.cat((old_k, k)), torch.cat((old_v, v))
        self._kept[layer, sequence] = (k, v)
        tokens, heads, _ = q.shape
        repeat = heads // k.shape[1]
        visible = torch.ones(tokens, k.shape[0], dtype=torch.bool).tril(k.shape[0] - tokens)
        out = F.scaled_dot_product_attention(
            q.transpose(0, 1),
            k.repeat_interleave(repeat, 1).transpose(0, 1),
            v.repeat_interleave(repeat, 1).transpose(0, 1),
            attn_mask=visible,
        )
        return out.transpose(0, 1).reshape(tokens, -1)
