"""Attention as one would write it on a blackboard: row by row.

The oracle of the other backends' tests, and what the reference runner uses. Scores and sums are
float32 whatever the cache holds.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torpor_worker.attention.base import (
    Allocate,
    AttentionBatch,
    AttentionShape,
    allocate_layers,
)


class ReferenceAttention:
    """Keys and values: [num_blocks, block_size, kv_heads, head_dim] per layer."""

    name = "reference"

    def __init__(self, shape: AttentionShape) -> None:
        self.shape = shape
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def allocate(self, num_blocks: int, make: Allocate, shared: bool = False) -> None:
        shape = self.shape
        size = (num_blocks, shape.block_size, shape.num_kv_heads, shape.head_dim)
        self.keys = allocate_layers(shape, size, make, shared)
        self.values = allocate_layers(shape, size, make, shared)

    def clear(self) -> None:
        for tensor in self.keys + self.values:
            tensor.zero_()

    def plan(self, batch: AttentionBatch) -> ReferenceRun:
        return ReferenceRun(self, batch)


class ReferenceRun:
    def __init__(self, backend: ReferenceAttention, batch: AttentionBatch) -> None:
        self._backend = backend
        self._slots = batch.slot_mapping.tolist()
        self._tables = batch.block_tables.tolist()
        self._rows = list(
            zip(
                batch.query_start[:-1].tolist(),
                batch.query_lens.tolist(),
                batch.seq_lens.tolist(),
                strict=True,
            )
        )

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = self._backend.keys[layer], self._backend.values[layer]
        size = self._backend.shape.block_size
        for token, slot in enumerate(self._slots):
            keys[slot // size, slot % size] = k[token]
            values[slot // size, slot % size] = v[token]
        outputs = []
        for (first, count, length), table in zip(self._rows, self._tables, strict=True):
            blocks = table[: -(-length // size)]
            own_keys = keys[blocks].flatten(0, 1)[:length]
            own_values = values[blocks].flatten(0, 1)[:length]
            outputs.append(self._attend(q[first : first + count], own_keys, own_values))
        return torch.cat(outputs).flatten(1).to(q.dtype)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q: the last queries of a row, [count, heads, dim]; k, v: all it has, [length, ...]."""
        shape = self._backend.shape
        keys = k.float().repeat_interleave(shape.group, dim=1)
        values = v.float().repeat_interleave(shape.group, dim=1)
        scores = torch.einsum("qhd,khd->hqk", q.float(), keys) * shape.scale
        place = torch.arange(len(k) - len(q), len(k))
        hidden = torch.arange(len(k))[None, :] > place[:, None]
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        return torch.einsum("hqk,khd->qhd", weights, values)
