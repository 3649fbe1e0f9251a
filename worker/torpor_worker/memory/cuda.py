"""The memory pool of a CUDA rank, over torch_memory_saver: virtual addresses survive a release.

The package hooks the CUDA allocator, so it must be in the worker image and set up before the
process starts (its ``LD_PRELOAD`` mode) or before the first allocation. It is asked for here only:
a CPU worker never imports it.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, cast

import torch
from torch import Tensor

from torpor_protocol.errors import ConfigError, MemoryBudgetError
from torpor_worker.memory.pool import MemoryPool

_FIX = "Lower --kv-cache-memory, use more ranks, or free memory of the accelerator."


class MemorySaver(Protocol):
    """The part of torch_memory_saver's object that is used."""

    def region(self, tag: str) -> AbstractContextManager[None]: ...
    def pause(self, tag: str) -> None: ...
    def resume(self, tag: str) -> None: ...


def load_memory_saver() -> MemorySaver:
    """Raises ConfigError when the package is not installed."""
    try:
        module = importlib.import_module("torch_memory_saver")
    except ImportError as error:
        raise ConfigError(
            f"The CUDA platform needs the package torch-memory-saver, which fails: {error}.",
            "Install torch-memory-saver in the worker image.",
        ) from error
    return cast(MemorySaver, module.torch_memory_saver)


@dataclass
class _Tagged:
    tensors: list[Tensor] = field(default_factory=list)
    host: list[Tensor] = field(default_factory=list)
    released: bool = False

    def size(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)


class CudaMemoryPool(MemoryPool):
    """Host copies for ``keep`` are made here, so that one region serves every sleep level."""

    def __init__(self, device: torch.device, saver: MemorySaver) -> None:
        self.device = device
        self._saver = saver
        self._tags: dict[str, _Tagged] = {}

    def allocate(self, tag: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        tagged = self._tags.setdefault(tag, _Tagged())
        if tagged.released:
            raise ValueError(f"memory {tag!r} is released; restore it before allocating")
        try:
            with self._saver.region(tag=tag):
                tensor = torch.zeros(tuple(shape), dtype=dtype, device=self.device)
        except torch.OutOfMemoryError as error:
            cause = f"{tuple(shape)} of {dtype} for {tag} do not fit on {self.device}."
            raise MemoryBudgetError(cause, _FIX) from error
        tagged.tensors.append(tensor)
        return tensor

    def release(self, tag: str, *, keep: bool = False) -> int:
        tagged = self._tags.get(tag)
        if tagged is None:
            return 0
        if not keep:
            tagged.host = []  # of an earlier, lighter sleep
        if tagged.released:
            return 0
        if keep:
            tagged.host = [self._to_host(tensor) for tensor in tagged.tensors]
            self._synchronize()
        self._saver.pause(tag)
        tagged.released = True
        return tagged.size()

    def restore(self, tag: str) -> int:
        tagged = self._tags.get(tag)
        if tagged is None or not tagged.released:
            return 0
        try:
            self._saver.resume(tag)
        except RuntimeError as error:
            raise MemoryBudgetError(f"{tag} cannot be restored: {error}.", _FIX) from error
        for tensor, copy in zip(tagged.tensors, tagged.host, strict=False):
            tensor.copy_(copy, non_blocking=True)
        self._synchronize()
        tagged.host = []
        tagged.released = False
        return tagged.size()

    def drop(self, tag: str) -> int:
        tagged = self._tags.pop(tag, _Tagged())
        return 0 if tagged.released else tagged.size()

    def is_released(self, tag: str) -> bool:
        tagged = self._tags.get(tag)
        return tagged is not None and tagged.released

    def bytes(self, tag: str) -> int:
        return self._tags[tag].size() if tag in self._tags else 0

    def resident(self) -> int:
        return sum(tagged.size() for tagged in self._tags.values() if not tagged.released)

    def _to_host(self, tensor: Tensor) -> Tensor:
        pinned = self.device.type == "cuda"
        copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=pinned)
        return copy.copy_(tensor, non_blocking=True)

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
