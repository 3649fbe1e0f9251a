"""Random paged attention batches, and what the oracle makes of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from torpor_worker.attention.base import AttentionBackend, AttentionBatch, AttentionShape
from torpor_worker.attention.reference import ReferenceAttention


def shape_of(
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 16,
    block_size: int = 4,
    layers: int = 2,
    max_model_len: int = 1024,
    dtype: torch.dtype = torch.float32,
) -> AttentionShape:
    device = torch.device("cpu")
    return AttentionShape(
        layers, heads, kv_heads, head_dim, block_size, max_model_len, dtype, device
    )


class Sequences:
    """Rows that grow: each step computes some tokens of some of them, in blocks drawn at random."""

    def __init__(self, shape: AttentionShape, rows: int, num_blocks: int, seed: int = 0) -> None:
        self.shape = shape
        self.num_blocks = num_blocks
        self.lengths = [0] * rows
        self.blocks: list[list[int]] = [[] for _ in range(rows)]
        self._rng = np.random.default_rng(seed)
        self._free = (self._rng.permutation(num_blocks - 1) + 1).tolist()

    def step(self, counts: Sequence[tuple[int, int]]) -> AttentionBatch:
        """``counts``: (row, tokens) in batch order, those with one token first."""
        size = self.shape.block_size
        slots: list[int] = []
        for row, count in counts:
            end = self.lengths[row] + count
            while len(self.blocks[row]) * size < end:
                self.blocks[row].append(self._free.pop())
            slots += [
                self.blocks[row][place // size] * size + place % size
                for place in range(self.lengths[row], end)
            ]
            self.lengths[row] = end
        query_lens = np.array([count for _, count in counts], np.int64)
        seq_lens = np.array([self.lengths[row] for row, _ in counts], np.int64)
        starts = np.concatenate(([0], np.cumsum(query_lens)))
        widest = max(len(self.blocks[row]) for row, _ in counts)
        # What lies behind a row's own blocks is left over from other requests: any block.
        tables = self._rng.integers(1, self.num_blocks, (len(counts), widest), np.int32)
        for index, (row, _) in enumerate(counts):
            tables[index, : len(self.blocks[row])] = self.blocks[row]
        return AttentionBatch(
            num_decodes=int((query_lens == 1).sum()),
            query_lens=query_lens,
            seq_lens=seq_lens,
            query_start=starts,
            seq_lens_device=torch.from_numpy(seq_lens),
            query_start_device=torch.from_numpy(starts),
            block_tables=torch.from_numpy(tables),
            slot_mapping=torch.tensor(slots),
        )


def random_qkv(shape: AttentionShape, tokens: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """q whole; k and v as a merged projection leaves them, with a stride between tokens."""
    generator = torch.Generator().manual_seed(seed)
    widths = [shape.num_heads, shape.num_kv_heads, shape.num_kv_heads]
    merged = torch.randn(tokens, sum(widths), shape.head_dim, generator=generator)
    q, k, v = torch.split(merged.to(shape.dtype), widths, dim=1)
    return q.contiguous(), k, v


def compare(
    backend: AttentionBackend,
    shape: AttentionShape,
    steps: Sequence[Sequence[tuple[int, int]]],
    num_blocks: int,
    tolerance: float = 1e-5,
) -> None:
    """Run the steps on the backend and on the oracle; every layer of every step must agree."""
    oracle = ReferenceAttention(shape)
    for either in (backend, oracle):
        either.allocate(num_blocks, lambda size, dtype: torch.full(size, 7.0, dtype=dtype))
    rows = 1 + max(row for step in steps for row, _ in step)
    sequences = Sequences(shape, rows, num_blocks)
    for number, counts in enumerate(steps):
        batch = sequences.step(counts)
        runs = backend.plan(batch), oracle.plan(batch)
        for layer in range(shape.num_layers):
            q, k, v = random_qkv(shape, batch.num_tokens, seed=1000 * number + layer)
            ours, theirs = (run(layer, q, k, v) for run in runs)
            assert ours.shape == (batch.num_tokens, shape.num_heads * shape.head_dim)
            np.testing.assert_allclose(ours.float(), theirs.float(), rtol=tolerance, atol=tolerance)
