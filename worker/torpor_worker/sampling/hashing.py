"""Random numbers that are functions of (seed, position): no generator, no state, no order.

A row's draw is the same in any batch, after any chunking, and when a lost group generates it again.
"""

from __future__ import annotations

import torch
from torch import Tensor

# splitmix64 (Steele, Lea, Flood 2014): increment and multipliers, as signed 64-bit integers.
_GAMMA = 0x9E3779B97F4A7C15 - 2**64
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64
_DOUBLE_BITS = 53


def uniform(seeds: Tensor, positions: Tensor) -> Tensor:
    """float64 in [0, 1), elementwise, from int64 ``seeds`` and ``positions``."""
    state = _mix(_mix(seeds + _GAMMA) + (positions + 1) * _GAMMA)
    return _shift_right(state, 64 - _DOUBLE_BITS).double().mul(2.0**-_DOUBLE_BITS)


def _mix(x: Tensor) -> Tensor:
    """splitmix64's finaliser: every bit of the input changes half of the bits of the output."""
    x = (x ^ _shift_right(x, 30)) * _FIRST
    x = (x ^ _shift_right(x, 27)) * _SECOND
    return torch.bitwise_xor(x, _shift_right(x, 31))


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Logical: int64 tensors shift their sign in."""
    return torch.bitwise_and(x >> bits, 2 ** (64 - bits) - 1)
