"""Paged attention on a CPU: the cache, its writes, and the two ways of attending.

Layout per layer: keys [num_blocks, kv_heads, head_dim, block_size], values [num_blocks, block_size,
kv_heads, head_dim]; see ``cpu_decode`` for the reason. Block 0, the null block, stays zero.
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
from torpor_worker.attention.cpu_decode import DecodePlanner, attend
from torpor_worker.attention.cpu_prefill import (
    CausalMasks,
    attend_chunk,
    attend_fresh,
    plan_prefill,
)


class CpuPagedAttention:
    name = "cpu"

    def __init__(self, shape: AttentionShape) -> None:
        self.shape = shape
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self.masks = CausalMasks(shape.max_model_len, shape.dtype)
        self.planner = DecodePlanner(shape)

    def allocate(self, num_blocks: int, make: Allocate, shared: bool = False) -> None:
        shape = self.shape
        heads, dim, size = shape.num_kv_heads, shape.head_dim, shape.block_size
        self.keys = allocate_layers(shape, (num_blocks, heads, dim, size), make, shared)
        self.values = allocate_layers(shape, (num_blocks, size, heads, dim), make, shared)
        self.planner.fit(num_blocks)

    def clear(self) -> None:
        for tensor in self.keys + self.values:
            tensor.zero_()

    def plan(self, batch: AttentionBatch) -> CpuRun:
        return CpuRun(self, batch)


class CpuRun:
    """One step."""

    def __init__(self, backend: CpuPagedAttention, batch: AttentionBatch) -> None:
        size = backend.shape.block_size
        self._backend = backend
        self._num_decodes = batch.num_decodes
        self._blocks = batch.slot_mapping.div(size, rounding_mode="floor")
        self._places = batch.slot_mapping.remainder(size)
        self._decodes = backend.planner.plan(batch)
        self._prefill = plan_prefill(batch, size)

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        shape = self._backend.shape
        keys, values = self._backend.keys[layer], self._backend.values[layer]
        keys.permute(0, 3, 1, 2).index_put_((self._blocks, self._places), k)
        values.index_put_((self._blocks, self._places), v)
        if not (self._prefill.fresh or self._prefill.chunks) and self._decodes[0].rows is None:
            return attend(self._decodes[0], shape, q.flatten(1), keys, values)
        out = torch.empty(q.shape, dtype=q.dtype)
        flat = out.flatten(1)
        for bucket in self._decodes:
            mixed = attend(bucket, shape, q.flatten(1), keys, values)
            if bucket.rows is None:
                flat[: bucket.size] = mixed
            else:
                flat.index_copy_(0, bucket.rows, mixed)
        for group in self._prefill.fresh:
            attend_fresh(group, q, k, v, out)
        for row in self._prefill.chunks:
            attend_chunk(row, shape, self._backend.masks, q, keys, values, out)
        return flat
