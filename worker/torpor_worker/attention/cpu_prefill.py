"""Prompts on a CPU: many queries per row.

Rows that begin (no context in the cache) attend to their own fresh keys, causally, several rows of
one length at a time. Rows that go on (a later chunk, a cached prefix) read their context from the
cache and run in blocks of queries, so that no mask or score grows with the square of the context.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from torpor_protocol.arrays import I64Array
from torpor_worker.attention.base import AttentionBatch, AttentionShape

QUERY_BLOCK = 256
MIN_QUERY_BLOCK = 16
MASK_CELLS = 2**22
PAD_BELOW = 128


class CausalMasks:
    """Masks of blocks of queries over a context, all views of one tensor.

    The last of n queries sees the whole context, the one before it one key less, and so on: seen
    from the right edge every such mask is the same. [block, width]: 0 or -inf, float.
    """

    def __init__(self, max_model_len: int, dtype: torch.dtype) -> None:
        longest = max_model_len + QUERY_BLOCK
        self.block = max(MIN_QUERY_BLOCK, min(QUERY_BLOCK, MASK_CELLS // longest))
        self._longest = longest
        self._dtype = dtype
        self._all = torch.empty(self.block, 0, dtype=dtype)

    def mask(self, queries: int, keys: int) -> Tensor:
        """[queries, keys] for the last ``queries`` <= ``block`` positions of ``keys``."""
        if self._all.shape[1] < keys:
            self._grow(min(self._longest, 2 * keys))
        return self._all[self.block - queries :, self._all.shape[1] - keys :]

    def _grow(self, width: int) -> None:
        last_seen = torch.arange(self.block)[:, None] + (width - self.block)
        hidden = torch.arange(width)[None, :] > last_seen
        mask = torch.zeros(self.block, width, dtype=self._dtype)
        self._all = mask.masked_fill_(hidden, float("-inf"))


@dataclass(frozen=True, slots=True)
class FreshGroup:
    """Rows without context. ``tokens``: their tokens in the batch, as a slice when they are as long
    as each other and neighbours, else int64 [rows * length], short rows filled up with their last
    token; ``keep``: which of these are real, or None for all."""

    num_rows: int
    length: int
    tokens: slice | Tensor
    keep: Tensor | None


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """A row with context: its tokens in the batch, its length with them, its blocks (int64)."""

    first: int
    count: int
    length: int
    blocks: Tensor


@dataclass(frozen=True, slots=True)
class PrefillPlan:
    fresh: list[FreshGroup]
    chunks: list[ChunkRow]


def plan_prefill(batch: AttentionBatch, block_size: int) -> PrefillPlan:
    """The rows behind the decodes."""
    rows = np.arange(batch.num_decodes, len(batch.seq_lens))
    begins = batch.query_lens[rows] == batch.seq_lens[rows]
    chunks = []
    for row in rows[~begins].tolist():
        length = int(batch.seq_lens[row])
        blocks = batch.block_tables[row, : -(-length // block_size)].to(torch.int64)
        chunks.append(
            ChunkRow(int(batch.query_start[row]), int(batch.query_lens[row]), length, blocks)
        )
    return PrefillPlan(_fresh_groups(batch, rows[begins]), chunks)


def _fresh_groups(batch: AttentionBatch, rows: I64Array) -> list[FreshGroup]:
    """Runs of neighbours of one length as they are; of the rest, short rows by similar length."""
    groups: list[FreshGroup] = []
    odd: dict[int, list[int]] = {}
    index = 0
    while index < len(rows):
        end = index + 1
        length = int(batch.query_lens[rows[index]])
        while (
            end < len(rows)
            and rows[end] == rows[end - 1] + 1
            and batch.query_lens[rows[end]] == length
        ):
            end += 1
        if end - index > 1 or length >= PAD_BELOW:
            first = int(batch.query_start[rows[index]])
            tokens = slice(first, first + (end - index) * length)
            groups.append(FreshGroup(end - index, length, tokens, None))
        else:
            odd.setdefault(length.bit_length(), []).append(int(rows[index]))
        index = end
    return groups + [_padded(batch, np.array(members)) for members in odd.values()]


def _padded(batch: AttentionBatch, rows: I64Array) -> FreshGroup:
    """Causality hides what is filled up behind a row from the row's own tokens."""
    lengths = batch.query_lens[rows]
    longest = int(lengths.max())
    place = np.arange(longest)
    starts = batch.query_start[:-1][rows]
    tokens = starts[:, None] + np.minimum(place, lengths[:, None] - 1)
    keep = np.flatnonzero(place < lengths[:, None])
    return FreshGroup(len(rows), longest, torch.from_numpy(tokens.ravel()), torch.from_numpy(keep))


def attend_fresh(group: FreshGroup, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> None:
    """q, k, v: [tokens, heads, head_dim] of the batch; writes ``out`` [tokens, heads, head_dim]."""
    mixed = scaled_dot_product_attention(
        _by_row(group, q), _by_row(group, k), _by_row(group, v), is_causal=True, enable_gqa=True
    )
    mixed = mixed.transpose(1, 2).flatten(0, 1)
    if isinstance(group.tokens, slice):
        out[group.tokens] = mixed
    else:
        assert group.keep is not None
        out.index_copy_(
            0, group.tokens.index_select(0, group.keep), mixed.index_select(0, group.keep)
        )


def _by_row(group: FreshGroup, part: Tensor) -> Tensor:
    """[rows, heads, length, head_dim]."""
    return part[group.tokens].view(group.num_rows, group.length, *part.shape[1:]).transpose(1, 2)


def attend_chunk(
    row: ChunkRow,
    shape: AttentionShape,
    masks: CausalMasks,
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    out: Tensor,
) -> None:
    """keys: [num_blocks, kv_heads, head_dim, block_size]; values: [num_blocks, block_size,
    kv_heads, head_dim]; both hold this step's tokens already."""
    context_keys = keys.index_select(0, row.blocks).permute(1, 0, 3, 2).flatten(1, 2)
    context_values = values.index_select(0, row.blocks).flatten(0, 1).transpose(0, 1)
    before = row.length - row.count
    for start in range(0, row.count, masks.block):
        count = min(masks.block, row.count - start)
        seen = before + start + count
        tokens = slice(row.first + start, row.first + start + count)
        mixed = scaled_dot_product_attention(
            q[tokens].transpose(0, 1)[None],
            context_keys[None, :, :seen],
            context_values[None, :, :seen],
            attn_mask=masks.mask(count, seen),
            enable_gqa=True,
        )
        out[tokens] = mixed[0].transpose(0, 1)
