"""The rows: what a runner remembers of each running request, as arrays over rows.

A request keeps the row that the scheduler gave it until it ends; a preempted request is one that
ended and comes back as a new one. Counts live on the host: they are known there exactly, because a
row gets exactly one token from each step it samples in. What the host does not know (tokens that
were just sampled) or what is large (tokens, block tables) lives on the device and is changed by
staged writes and by the step itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torpor_protocol.arrays import I32Array, I64Array, unpack_i32
from torpor_protocol.steps import NewRequest
from torpor_worker.runner.staged_write import StagedWriteTensor

BoolArray = NDArray[np.bool_]
NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class RowLimits:
    """Sizes of a runner's arrays. ``max_blocks``: blocks of one row."""

    max_num_seqs: int
    max_model_len: int
    max_num_batched_tokens: int
    block_size: int
    vocab_size: int

    @property
    def max_blocks(self) -> int:
        return -(-self.max_model_len // self.block_size)


class RequestStates:
    """Host, int64 [rows]: ``prompt_len``; ``total_len`` (tokens it has); ``num_computed`` (tokens
    in the KV cache); ``num_blocks``; ``generation``. ``active`` bool [rows].

    Device: ``token_ids`` int32 [rows, max_model_len + 1] (a row that is full may still sample the
    token that ends it); ``last_token`` int64 [rows], its last known token; ``block_table`` int32
    [rows, max_blocks]. ``cache_blocks``: blocks of the KV cache, the null block among them.
    """

    def __init__(self, limits: RowLimits, device: torch.device | str) -> None:
        rows = limits.max_num_seqs
        self.limits = limits
        self.device = device
        self.cache_blocks = 0
        self.prompt_len: I64Array = np.zeros(rows, np.int64)
        self.total_len: I64Array = np.zeros(rows, np.int64)
        self.num_computed: I64Array = np.zeros(rows, np.int64)
        self.num_blocks: I64Array = np.zeros(rows, np.int64)
        self.generation: I64Array = np.full(rows, NO_GENERATION, np.int64)
        self.active: BoolArray = np.zeros(rows, np.bool_)
        self.token_ids = StagedWriteTensor((rows, limits.max_model_len + 1), torch.int32, device)
        self.last_token = StagedWriteTensor(rows, torch.int64, device)
        self.block_table = StagedWriteTensor((rows, limits.max_blocks), torch.int32, device)

    def finish(self, rows: I32Array) -> None:
        """Free rows. Their arrays keep old values, which nothing reads."""
        self.active[rows] = False

    def add(self, request: NewRequest) -> None:
        """Fill a free row; tokens and blocks are staged."""
        row, tokens, blocks = request.row, unpack_i32(request.tokens), unpack_i32(request.blocks)
        self.active[row] = True
        self.generation[row] = request.generation
        self.prompt_len[row] = request.prompt_len
        self.total_len[row] = len(tokens)
        self.num_computed[row] = request.num_computed
        self.num_blocks[row] = len(blocks)
        self.token_ids.stage_write(row=row, start=0, value=tokens)
        self.last_token.stage_write(row=row, start=0, value=tokens[-1:])
        self.block_table.stage_write(row=row, start=0, value=blocks)

    def append_blocks(self, rows: I32Array, counts: I32Array, blocks: I32Array) -> None:
        """Append to block tables; a row may be named more than once."""
        if not len(rows):
            return
        starts = self.num_blocks[rows] + earlier_in_row(rows, counts)
        self.block_table.stage_writes(rows, starts, counts, blocks)
        np.add.at(self.num_blocks, rows, counts)

    def apply_staged(self) -> None:
        """Bring this step's differences to the device: one launch per tensor that changed."""
        self.token_ids.apply_write()
        self.last_token.apply_write()
        self.block_table.apply_write()

    def append_tokens(
        self, rows: I64Array, rows_device: Tensor, positions: Tensor, tokens: Tensor
    ) -> None:
        """Append a sampled token to each row. ``tokens`` and ``positions`` (where they go) int64,
        on the device, parallel to ``rows`` on the host and ``rows_device``."""
        cells = positions + rows_device * self.token_ids.tensor.shape[1]
        self.token_ids.tensor.view(-1).index_copy_(0, cells, tokens.to(torch.int32))
        self.last_token.tensor.index_copy_(0, rows_device, tokens)
        self.total_len[rows] += 1

    def reset(self) -> None:
        """Free every row and forget its generations."""
        self.active[:] = False
        self.generation[:] = NO_GENERATION


def earlier_in_row(rows: I32Array, counts: I32Array) -> I64Array:
    """For each entry, the blocks that earlier entries of the same row append."""
    order = np.argsort(rows, kind="stable")
    before = np.cumsum(counts[order]) - counts[order]
    first = np.r_[True, rows[order][1:] != rows[order][:-1]]
    since = before - np.maximum.accumulate(np.where(first, before, 0))
    result = np.empty(len(rows), np.int64)
    result[order] = since
    return result
