"""Which linear method a layer uses. The choice is pure; what the machine can do is asked once.

Measured with SmolLM2's matrices in float32 on two Zen 3 cores: with both threads oneDNN's packed
product is faster than torch's plain one at one token (1.0-2.0 times), 8 (1.3-2.8) and 64 (1.1-2.5),
and gives the same greedy tokens. With one thread it loses at one token (0.7-1.1) and wins from two
on. It has a fixed cost of some 20 us a call, which small matrices do not earn back.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Literal

import torch
import torch.nn.functional as F

from torpor_worker.layers.linear_method import LinearMethod, PlainLinear
from torpor_worker.layers.opaque import descriptor, opaque_tensor, raw_bytes
from torpor_worker.layers.packed import PackedLinear, pack

LinearName = Literal["plain", "packed"]
LINEAR_METHODS: dict[LinearName, type[LinearMethod]] = {
    "plain": PlainLinear,
    "packed": PackedLinear,
}

# Elements of a rank's weight from which packing pays: below, plain is as fast or faster up to 64
# tokens.
MIN_PACKED = 2**17

_PROBE = (64, 64)
_log = logging.getLogger(__name__)


def choose_linear(device_type: str, can_pack: bool, elements: int) -> LinearName:
    """``can_pack``: weights of the model's dtype, on this machine; ``elements`` of the weight."""
    if device_type == "cpu" and can_pack and elements >= MIN_PACKED:
        return "packed"
    return "plain"


@cache
def can_pack(dtype: torch.dtype) -> bool:
    """Whether a packed weight over memory of ours multiplies as the plain one does."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(_PROBE, generator=generator).to(dtype)
    x = torch.randn((3, _PROBE[1]), generator=generator).to(dtype)
    try:
        packed = pack(weight)
        memory = raw_bytes(packed).clone()
        view = opaque_tensor(memory, _PROBE, dtype, descriptor(packed))
        result = torch.ops.mkldnn._linear_pointwise(x, view, None, "none", [], "")
    except (AttributeError, OSError, RuntimeError) as error:
        _log.debug("no packed weights in %s: %s", dtype, error)
        return False
    return torch.allclose(result.float(), F.linear(x, weight).float(), rtol=0.05, atol=0.05)
