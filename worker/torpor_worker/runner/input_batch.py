"""A step's inputs, made on the device from the persistent rows and a few small arrays.

One upload per step carries everything the device must be told; no loop runs over requests. A step
in which every row computes its last known token, the steady state of decoding, is a handful of
gathers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from torpor_protocol.arrays import I32Array, I64Array
from torpor_worker.attention.base import AttentionBatch
from torpor_worker.runner.states import RequestStates
from torpor_worker.runner.step_check import Step
from torpor_worker.sampling.parameters import SampleRows
from torpor_worker.upload import upload


@dataclass(frozen=True, slots=True)
class InputBatch:
    """``input_ids``, ``positions``: int64 [tokens], on the device. ``rows`` int64, ``num_tokens``
    int32, both [n], on the host: the scheduled rows. ``sampling``: those of them that sample;
    ``logits_index`` int64 [m], on the device: where their last tokens are in the batch."""

    step: int
    rows: I64Array
    num_tokens: I32Array
    input_ids: Tensor
    positions: Tensor
    attention: AttentionBatch
    sampling: SampleRows
    logits_index: Tensor


class _Uploaded(NamedTuple):
    """int64, on the device. [n]: rows, starts, ends; [n + 1]: query_start; [m]: the rest."""

    rows: Tensor
    starts: Tensor
    ends: Tensor
    query_start: Tensor
    logits_index: Tensor
    sample_rows: Tensor
    sample_positions: Tensor


def prepare_inputs(step: Step, states: RequestStates) -> InputBatch:
    """The step's differences must have been applied; ``step`` has at least one row."""
    rows = step.rows.astype(np.int64)
    starts = states.num_computed[rows]
    ends = starts + step.num_tokens
    totals = states.total_len[rows]
    samples = np.flatnonzero(ends == totals)
    query_start = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(step.num_tokens, out=query_start[1:])
    sample_rows = rows[samples]
    sample_positions = totals[samples]
    logits_index = query_start[1:][samples] - 1
    device = _upload(
        states.device,
        (rows, starts, ends, query_start, logits_index, sample_rows, sample_positions),
    )
    steady = step.total_tokens == len(rows) == len(samples)
    make = _steady_tokens if steady else _any_tokens
    input_ids, positions, slots = make(states, device, step.total_tokens)
    return InputBatch(
        step=step.step,
        rows=rows,
        num_tokens=step.num_tokens,
        input_ids=input_ids,
        positions=positions,
        attention=_attention_batch(step, states, device, ends, query_start, slots),
        sampling=SampleRows(
            host=sample_rows,
            device=device.sample_rows,
            positions=device.sample_positions,
            output_lens=sample_positions - states.prompt_len[sample_rows],
        ),
        logits_index=device.logits_index,
    )


def _attention_batch(
    step: Step,
    states: RequestStates,
    device: _Uploaded,
    ends: I64Array,
    query_start: I64Array,
    slots: Tensor,
) -> AttentionBatch:
    """Block tables are cut to the longest row of the step."""
    widest = -(-int(ends.max()) // states.limits.block_size)
    return AttentionBatch(
        num_decodes=int(np.count_nonzero(step.num_tokens == 1)),
        query_lens=step.num_tokens.astype(np.int64),
        seq_lens=ends,
        query_start=query_start,
        seq_lens_device=device.ends,
        query_start_device=device.query_start,
        block_tables=states.block_table.tensor[:, :widest].index_select(0, device.rows),
        slot_mapping=slots,
    )


def _upload(device: torch.device | str, parts: tuple[I64Array, ...]) -> _Uploaded:
    """One copy. The packed buffer is this step's own: nothing writes it again."""
    packed = upload(np.concatenate(parts), device)
    return _Uploaded(*torch.split(packed, [len(part) for part in parts]))


def _steady_tokens(
    states: RequestStates, device: _Uploaded, total: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Each row computes its last token: one token per row, in batch order."""
    input_ids = states.last_token.tensor.index_select(0, device.rows)
    return input_ids, device.starts, _slots(states, device.rows, device.starts)


def _any_tokens(
    states: RequestStates, device: _Uploaded, total: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Prompts, chunks of them, and decodes, in batch order."""
    order = torch.arange(total, device=device.rows.device)
    counts = torch.diff(device.query_start)
    entry = torch.repeat_interleave(counts, output_size=total)
    shift = device.starts - device.query_start[:-1]
    positions = order + shift.index_select(0, entry)
    rows = device.rows.index_select(0, entry)
    tokens = states.token_ids.tensor
    cells = rows * tokens.shape[1] + positions
    input_ids = tokens.view(-1).index_select(0, cells).to(torch.int64)
    return input_ids, positions, _slots(states, rows, positions)


def _slots(states: RequestStates, rows: Tensor, positions: Tensor) -> Tensor:
    """Where each token's key and value go in the cache: block * block_size + place."""
    size = states.limits.block_size
    table = states.block_table.tensor
    cells = rows * table.shape[1] + positions.div(size, rounding_mode="floor")
    blocks = table.view(-1).index_select(0, cells)
    return blocks.to(torch.int64) * size + positions.remainder(size)
