"""The Triton kernel of paged attention. Imported only where a device runs it (or the interpreter).

One program takes some queries of one row and one KV head: the query heads of the group are further
rows of its tile, so that each key and value is read once for all of them. It walks the row's block
table with a running maximum and sum (online softmax); a decode is the case of one query.
"""

from __future__ import annotations

from typing import Any

import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor

from torpor_worker.attention.base import AttentionShape

MIN_TILE = 16  # tl.dot's smallest side
WARPS = 4


@triton.jit  # type: ignore[untyped-decorator]
def _attend_kernel(  # type: ignore[no-untyped-def]
    q,
    keys,
    values,
    out,
    tables,
    seq_lens,
    query_start,
    piece_rows,
    piece_firsts,
    scale,
    q_stride,
    table_stride,
    QUERIES: tl.constexpr,
    TILE: tl.constexpr,
    GROUP: tl.constexpr,
    KV_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    DIM_TILE: tl.constexpr,
    SIZE: tl.constexpr,
    SIZE_TILE: tl.constexpr,
) -> Any:
    """Grid (pieces, KV heads). Piece i is queries ``piece_firsts[i]`` to + QUERIES of row
    ``piece_rows[i]``; a tile row is one of them for one head of the group."""
    row = tl.load(piece_rows + tl.program_id(0))
    first = tl.load(piece_firsts + tl.program_id(0))
    head = tl.program_id(1)
    begin = tl.load(query_start + row)
    count = tl.load(query_start + row + 1) - begin
    length = tl.load(seq_lens + row)
    line = tl.arange(0, TILE)
    token = first + line // GROUP
    real = (line < QUERIES * GROUP) & (token < count)
    seen = length - count + token + 1
    dim = tl.arange(0, DIM_TILE)
    column = (head * GROUP + line % GROUP)[:, None] * DIM + dim[None, :]
    inside = real[:, None] & (dim < DIM)[None, :]
    query = tl.load(q + (begin + token)[:, None] * q_stride + column, mask=inside, other=0.0)
    place = tl.arange(0, SIZE_TILE)
    best = tl.full((TILE,), float("-inf"), tl.float32)
    total = tl.zeros((TILE,), tl.float32)
    mixed = tl.zeros((TILE, DIM_TILE), tl.float32)
    last = tl.minimum(length - count + first + QUERIES, length)
    for number in range(0, tl.cdiv(last, SIZE)):
        block = tl.load(tables + row * table_stride + number).to(tl.int64)
        position = number * SIZE + place
        # What lies behind the row's end may be anything, even infinite: it is not read.
        own = (place < SIZE) & (position < length)
        cells = ((block * SIZE + place) * KV_HEADS + head)[:, None] * DIM + dim[None, :]
        mask = own[:, None] & (dim < DIM)[None, :]
        key = tl.load(keys + cells, mask=mask, other=0.0)
        score = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
        visible = own[None, :] & (position[None, :] < seen[:, None]) & real[:, None]
        score = tl.where(visible, score, float("-inf"))
        higher = tl.maximum(best, tl.max(score, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weight = tl.exp(score - base[:, None])
        kept = tl.exp(best - base)
        value = tl.load(values + cells, mask=mask, other=0.0)
        total = total * kept + tl.sum(weight, 1)
        mixed = mixed * kept[:, None]
        mixed += tl.dot(weight.to(value.dtype), value, input_precision="ieee")
        best = higher
    mixed = mixed / tl.where(total > 0, total, 1.0)[:, None]
    line_out = out + (begin + token)[:, None] * (KV_HEADS * GROUP * DIM) + column
    tl.store(line_out, mixed.to(out.dtype.element_ty), mask=inside)


def attend(
    shape: AttentionShape,
    queries: int,
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    out: Tensor,
    tables: Tensor,
    seq_lens: Tensor,
    query_start: Tensor,
    piece_rows: Tensor,
    piece_firsts: Tensor,
) -> None:
    """q: [tokens, heads, head_dim], each token's heads contiguous; keys, values: [num_blocks,
    block_size, kv_heads, head_dim]; writes its pieces' part of ``out`` [tokens, heads * head_dim].
    ``queries``: per piece."""
    _attend_kernel[(len(piece_rows), shape.num_kv_heads)](
        q,
        keys,
        values,
        out,
        tables,
        seq_lens,
        query_start,
        piece_rows,
        piece_firsts,
        shape.scale,
        q.stride(0),
        tables.stride(0),
        QUERIES=queries,
        TILE=_tile(queries * shape.group),
        GROUP=shape.group,
        KV_HEADS=shape.num_kv_heads,
        DIM=shape.head_dim,
        DIM_TILE=_tile(shape.head_dim),
        SIZE=shape.block_size,
        SIZE_TILE=_tile(shape.block_size),
        num_warps=WARPS,
    )


def _tile(size: int) -> int:
    """The side of a tile that holds ``size`` entries."""
    return max(MIN_TILE, 1 << (size - 1).bit_length())
