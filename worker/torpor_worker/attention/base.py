"""The interface between the runner and an attention backend.

A backend owns the layout of the KV cache. Per step it gets one :class:`AttentionBatch` and makes
one run of it, which every layer of the model then calls; whatever does not depend on the layer is
computed once, in ``plan``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from torpor_protocol.arrays import I64Array

Allocate = Callable[[tuple[int, ...], torch.dtype], Tensor]


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Sizes of one rank: its own layers and heads."""

    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    max_model_len: int
    dtype: torch.dtype
    device: torch.device

    @property
    def group(self) -> int:
        """Query heads that share a KV head."""
        return self.num_heads // self.num_kv_heads

    @property
    def scale(self) -> float:
        return float(self.head_dim**-0.5)


@dataclass(frozen=True, slots=True)
class AttentionBatch:
    """One step. Row i has ``query_lens[i]`` new tokens, the last of its ``seq_lens[i]``; the first
    ``num_decodes`` rows have one each. ``query_start`` [n + 1]: where a row's tokens begin.

    Host int64: ``query_lens``, ``seq_lens``, ``query_start``. Device: ``seq_lens_device`` and
    ``query_start_device`` int64; ``block_tables`` int32 [n, most blocks of a row], with anything
    behind a row's own blocks; ``slot_mapping`` int64 [tokens], block * block_size + place.
    """

    num_decodes: int
    query_lens: I64Array
    seq_lens: I64Array
    query_start: I64Array
    seq_lens_device: Tensor
    query_start_device: Tensor
    block_tables: Tensor
    slot_mapping: Tensor

    @property
    def num_tokens(self) -> int:
        return int(self.query_start[-1])


class LayerRun(Protocol):
    """``models`` call it once per layer, in the layers' order: writes k and v into the cache and
    gives softmax(q k) v, [tokens, heads * head_dim]. q: [tokens, heads, head_dim]; k, v: [tokens,
    kv_heads, head_dim]."""

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor: ...


class AttentionBackend(Protocol):
    """``allocate`` makes the cache, zeroed, with ``make`` (which may give any content); with
    ``shared`` all layers use one layer's memory, which is enough to measure a forward pass."""

    name: str

    def allocate(self, num_blocks: int, make: Allocate, shared: bool = False) -> None: ...

    def clear(self) -> None:
        """Zero the cache, so that what is read beyond a row's tokens is finite, and its pages are
        there."""

    def plan(self, batch: AttentionBatch) -> LayerRun: ...


def allocate_layers(
    shape: AttentionShape, size: tuple[int, ...], make: Allocate, shared: bool
) -> list[Tensor]:
    """One zeroed tensor per layer."""
    count = 1 if shared else shape.num_layers
    tensors = [make(size, shape.dtype).zero_() for _ in range(count)]
    return tensors * shape.num_layers if shared else tensors
