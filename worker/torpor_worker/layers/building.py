"""Where layers under construction take their memory and their linear method from.

Constructors stay uniform (``config, groups, prefix``); the pool and the choice of the linear method
belong to the build as a whole, so they are a context of it, like torch's default device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import nn

from torpor_worker.layers.linear_method import LinearMethod
from torpor_worker.memory.pool import WEIGHTS, MemoryPool


@dataclass(frozen=True)
class BuildContext:
    """``linear_method`` gives the class for a weight of so many elements on this rank."""

    pool: MemoryPool
    linear_method: Callable[[int], type[LinearMethod]]


_current: ContextVar[BuildContext] = ContextVar("torpor_build_context")


@contextmanager
def building(context: BuildContext) -> Iterator[None]:
    """Layers made inside belong to this build."""
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)


def current_pool() -> MemoryPool:
    """Raises LookupError outside of ``building``."""
    return _current.get().pool


def new_linear_method(elements: int) -> LinearMethod:
    """For one layer. Raises LookupError outside of ``building``."""
    context = _current.get()
    return context.linear_method(elements)(context.pool)


def new_parameter(shape: Sequence[int], dtype: torch.dtype) -> nn.Parameter:
    """Zeros in the pool of this build, under the tag ``weights``."""
    return nn.Parameter(current_pool().allocate(WEIGHTS, shape, dtype), requires_grad=False)
