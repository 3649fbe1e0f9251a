"""What a model asks of attention: the seam between model code and runner.

The model computes q, k and v of the step's tokens and applies the rotary embedding; the runner's
object writes k and v into the paged KV cache and attends. It carries the step's metadata itself
(sequence lengths, block tables), so that models know nothing of batching.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class AttentionRun(Protocol):
    """Attention of one step, for the rank's share of heads."""

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """``layer``: index among this rank's layers. q: [n, heads, d]; k and v: [n, kv_heads, d].

        q and k are after rotary. A token's heads are contiguous, but the stride between tokens may
        be larger: q, k and v are views. Returns [n, heads * d], contiguous, in q's dtype.
        """
        ...
