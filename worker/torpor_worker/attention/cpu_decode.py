"""Decoding on a CPU: one query per row against its paged context, without copying the context.

``torch.embedding_bag`` reads rows of a table by index and sums them with weights, in vectorised
code that never materialises what it reads. Both halves of attention are such sums:

* scores: with a block's keys stored as [head_dim, block_size], the block's scores are the sum over
  ``head_dim`` of the query's entry times a table row of ``block_size`` keys;
* output: the sum over positions of the weight times a table row of ``head_dim`` values.

So a row's keys and values are read where they lie, once from memory (query heads of a group come
one after another and find them in the cache). Gathering them first, for a batched product, writes
and reads them again and takes more than twice as long.

Rows are put into buckets of similar length, because scores are a rectangle per bucket.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from torpor_protocol.arrays import I64Array
from torpor_worker.attention.base import AttentionBatch, AttentionShape

PADDING_RATIO = 2
_INT32_LIMIT = 2**31 - 1
SUM = 0


def length_buckets(num_blocks: I64Array) -> list[I64Array]:
    """Indices of rows by bucket: in none has the longest row over PADDING_RATIO times the blocks
    of the shortest. Rows stay in order within a bucket."""
    if not len(num_blocks):
        return []
    if num_blocks.max() <= PADDING_RATIO * num_blocks.min():
        return [np.arange(len(num_blocks))]
    order = np.argsort(num_blocks, kind="stable")
    lengths = num_blocks[order]
    buckets: list[I64Array] = []
    first = 0
    while first < len(order):
        last = int(np.searchsorted(lengths, PADDING_RATIO * lengths[first], side="right"))
        buckets.append(np.sort(order[first:last]))
        first = last
    return buckets


@dataclass(frozen=True, slots=True)
class DecodeBucket:
    """What all layers share. B rows, N blocks of the longest, H heads, S = N * block_size.

    ``rows``: the bucket's rows in the batch, or None for exactly the first B;
    ``query_rows`` [blocks]: batch row of each real block; ``key_index`` [blocks * H * head_dim] and
    ``key_bags`` [B * N * H + 1]: the first sum, in which blocks that a row lacks are empty bags;
    ``mask`` [B, 1, S]: 0 or -inf; ``value_index`` [B * H * S] and ``value_bags`` [B * H + 1]: the
    second sum, in which positions behind a row's end read the null block.
    """

    rows: Tensor | None
    size: int
    num_blocks: int
    query_rows: Tensor
    key_index: Tensor
    key_bags: Tensor
    mask: Tensor
    value_index: Tensor
    value_bags: Tensor


class DecodePlanner:
    """Makes the buckets of a step; the patterns over heads are made once."""

    def __init__(self, shape: AttentionShape) -> None:
        self.shape = shape
        heads = torch.arange(shape.num_heads) // shape.group
        dims = torch.arange(shape.head_dim)
        self._key_pattern = (heads[:, None] * shape.head_dim + dims).flatten()
        self._value_pattern = heads[None, :, None]
        self._index_type = torch.int32
        self._places = torch.arange(shape.block_size)

    def fit(self, num_blocks: int) -> None:
        """Choose the index type for a cache of this size."""
        shape = self.shape
        largest = num_blocks * shape.num_kv_heads * max(shape.head_dim, shape.block_size)
        self._index_type = torch.int32 if largest < _INT32_LIMIT else torch.int64
        self._key_pattern = self._key_pattern.to(self._index_type)
        self._value_pattern = self._value_pattern.to(self._index_type)
        self._places = self._places.to(self._index_type)

    def plan(self, batch: AttentionBatch) -> list[DecodeBucket]:
        count = batch.num_decodes
        lengths = batch.seq_lens[:count]
        blocks = -(-lengths // self.shape.block_size)
        tables = batch.block_tables[:count]
        buckets = length_buckets(blocks)
        if len(buckets) == 1:
            return [self._bucket(None, lengths, blocks, tables)]
        return [
            self._bucket(
                torch.from_numpy(rows),
                lengths[rows],
                blocks[rows],
                tables.index_select(0, torch.from_numpy(rows)),
            )
            for rows in buckets
        ]

    def _bucket(
        self, rows: Tensor | None, lengths: I64Array, blocks: I64Array, tables: Tensor
    ) -> DecodeBucket:
        shape = self.shape
        size, most = len(lengths), int(blocks.max())
        tables = tables[:, :most].to(self._index_type)
        own = np.arange(most) < blocks[:, None]
        entry = torch.from_numpy(np.repeat(np.arange(size), blocks))
        real = tables.reshape(-1).index_select(0, torch.from_numpy(np.flatnonzero(own)))
        keys = real[:, None] * (shape.num_kv_heads * shape.head_dim) + self._key_pattern
        inside = torch.from_numpy(np.arange(most * shape.block_size) < lengths[:, None])
        mask = torch.zeros(inside.shape, dtype=shape.dtype)
        mask.masked_fill_(~inside, float("-inf"))
        slots = (tables[:, :, None] * shape.block_size + self._places).view(size, -1)
        slots = slots * inside
        values = slots[:, None, :] * shape.num_kv_heads + self._value_pattern
        return DecodeBucket(
            rows=rows,
            size=size,
            num_blocks=most,
            query_rows=entry if rows is None else rows.index_select(0, entry),
            key_index=keys.flatten(),
            key_bags=self._key_bags(torch.from_numpy(own), len(keys)),
            mask=mask[:, None],
            value_index=values.flatten(),
            value_bags=self._equal_bags(size * shape.num_heads, most * shape.block_size),
        )

    def _key_bags(self, own: Tensor, real: int) -> Tensor:
        """Bags are [row, block, head]; ``own`` [row, block] tells which blocks there are."""
        heads, dim = self.shape.num_heads, self.shape.head_dim
        if real == own.numel():
            return self._equal_bags(real * heads, dim)
        counts = (own.flatten() * dim).repeat_interleave(heads)
        bags = torch.zeros(len(counts) + 1, dtype=self._index_type)
        torch.cumsum(counts, 0, dtype=self._index_type, out=bags[1:])
        return bags

    def _equal_bags(self, count: int, width: int) -> Tensor:
        return torch.arange(0, (count + 1) * width, width, dtype=self._index_type)


def attend(
    bucket: DecodeBucket, shape: AttentionShape, q: Tensor, keys: Tensor, values: Tensor
) -> Tensor:
    """q: [rows of the batch, heads * head_dim]; keys: [num_blocks, kv_heads, head_dim, block_size];
    values: [num_blocks, block_size, kv_heads, head_dim]. Returns [B, heads * head_dim]."""
    weights = q.index_select(0, bucket.query_rows).view(-1)
    scores = _sum(keys.view(-1, shape.block_size), bucket.key_index, bucket.key_bags, weights)
    scores = scores.view(bucket.size, bucket.num_blocks, shape.num_heads, shape.block_size)
    scores = scores.transpose(1, 2).reshape(bucket.size, shape.num_heads, -1)
    scores = torch.add(bucket.mask, scores, alpha=shape.scale)
    weights = torch.softmax(scores, -1).view(-1)
    mixed = _sum(values.view(-1, shape.head_dim), bucket.value_index, bucket.value_bags, weights)
    return mixed.view(bucket.size, -1)


def _sum(table: Tensor, index: Tensor, bags: Tensor, weights: Tensor) -> Tensor:
    """Bag by bag, the weighted sum of table rows. ``bags``: where each begins, and the end."""
    return torch.embedding_bag(table, index, bags, False, SUM, False, weights, True)[0]
