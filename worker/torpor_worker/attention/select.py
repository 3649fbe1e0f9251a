"""Which attention backend a rank uses. Pure choice; the code of the others is never imported."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from torpor_worker.attention.base import AttentionBackend, AttentionShape

BACKENDS = {
    "cpu": "torpor_worker.attention.cpu_paged:CpuPagedAttention",
    "triton": "torpor_worker.attention.triton_paged:TritonPagedAttention",
    "reference": "torpor_worker.attention.reference:ReferenceAttention",
}


def choose_attention(runner: str, device_type: str) -> str:
    """A name of BACKENDS. The reference runner takes the oracle, so that it shares no arithmetic
    with what it checks, and needs no Triton."""
    if runner == "reference":
        return "reference"
    return "cpu" if device_type == "cpu" else "triton"


def make_attention(name: str, shape: AttentionShape) -> AttentionBackend:
    """The backend, without a cache yet."""
    module, _, attribute = BACKENDS[name].partition(":")
    backend: Callable[[AttentionShape], AttentionBackend]
    backend = getattr(importlib.import_module(module), attribute)
    return backend(shape)
