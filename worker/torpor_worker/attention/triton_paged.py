"""Paged attention on a device that runs Triton.

Keys and values: [num_blocks, block_size, kv_heads, head_dim] per layer. A long context is walked by
one program per row and KV head; splitting it over several is left for when there is a device to
measure on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from torpor_protocol.arrays import I64Array
from torpor_worker.attention.base import (
    Allocate,
    AttentionBatch,
    AttentionShape,
    allocate_layers,
)
from torpor_worker.attention.triton_kernels import attend
from torpor_worker.upload import upload

TILE_ROWS = 64


class Pieces(NamedTuple):
    """One launch: ``queries`` per piece, and int64 [pieces] the rows they are of and the place of
    their first query in the row."""

    queries: int
    rows: Tensor
    firsts: Tensor


class TritonPagedAttention:
    name = "triton"

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

    def plan(self, batch: AttentionBatch) -> TritonRun:
        return TritonRun(self, batch)


class TritonRun:
    """One step. Decodes and prompts are launches of their own, because their tiles differ."""

    def __init__(self, backend: TritonPagedAttention, batch: AttentionBatch) -> None:
        self._backend = backend
        self._batch = batch
        device = backend.shape.device
        decodes, rows = batch.num_decodes, np.arange(len(batch.query_lens))
        self._launches = []
        if decodes:
            self._launches.append(_pieces(rows[:decodes], batch.query_lens[:decodes], 1, device))
        if decodes < len(rows):
            queries = max(1, TILE_ROWS // backend.shape.group)
            lens = batch.query_lens[decodes:]
            self._launches.append(_pieces(rows[decodes:], lens, queries, device))

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        backend, batch = self._backend, self._batch
        keys, values = backend.keys[layer], backend.values[layer]
        keys.flatten(0, 1).index_copy_(0, batch.slot_mapping, k)
        values.flatten(0, 1).index_copy_(0, batch.slot_mapping, v)
        out = torch.empty((len(q), q.shape[1] * q.shape[2]), dtype=q.dtype, device=q.device)
        for queries, rows, firsts in self._launches:
            attend(
                backend.shape,
                queries,
                q,
                keys,
                values,
                out,
                batch.block_tables,
                batch.seq_lens_device,
                batch.query_start_device,
                rows,
                firsts,
            )
        return out


def _pieces(rows: I64Array, lens: I64Array, queries: int, device: torch.device) -> Pieces:
    counts = -(-lens // queries)
    starts = np.cumsum(counts) - counts
    numbers = np.arange(int(counts.sum())) - np.repeat(starts, counts)
    return Pieces(
        queries, upload(np.repeat(rows, counts), device), upload(numbers * queries, device)
    )
