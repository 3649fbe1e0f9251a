"""Which part of a checkpoint tensor a tensor-parallel rank holds, and where. Pure.

Sizes that do not divide are padded: every rank has ``ceil(n / tp)`` entries and the last ranks a
tail of zeros, so that collectives see equal shapes. Heads are never padded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torpor_protocol.errors import ConfigError


@dataclass(frozen=True)
class Span:
    """``start:stop`` of the whole, kept in ``size`` entries (the rest is zero)."""

    start: int
    stop: int
    size: int


@dataclass(frozen=True)
class Shard:
    """``start:stop`` along ``dim`` of a checkpoint tensor of ``shape``, which goes to ``offset``
    along the same dimension of the parameter."""

    shape: tuple[int, ...]
    dim: int
    start: int
    stop: int
    offset: int = 0

    @property
    def count(self) -> int:
        """Elements of the part."""
        total = self.stop - self.start
        for dim, size in enumerate(self.shape):
            if dim != self.dim:
                total *= size
        return total


def split(total: int, parts: int, index: int) -> Span:
    """Share ``index`` of ``total`` entries in ``parts`` padded shares."""
    size = -(-total // parts)
    return Span(min(total, index * size), min(total, (index + 1) * size), size)


def split_kv_heads(heads: int, tp_size: int, tp_rank: int) -> Span:
    """KV heads of a rank: an equal share, or one head that neighbours hold too."""
    if heads >= tp_size:
        return split(heads, tp_size, tp_rank)
    head = tp_rank // (tp_size // heads)
    return Span(head, head + 1, 1)


def scaled(span: Span, factor: int) -> Span:
    """The span in units that are ``factor`` times smaller (heads -> rows)."""
    return Span(span.start * factor, span.stop * factor, span.size * factor)


def whole(shape: Sequence[int]) -> Shard:
    """A tensor that every rank holds."""
    return Shard(tuple(shape), 0, 0, shape[0])


def tensor_parallel_sizes(heads: int, kv_heads: int) -> list[int]:
    """Degrees over which attention divides: whole heads, and KV heads shared out or repeated."""
    return [
        tp
        for tp in range(1, heads + 1)
        if heads % tp == 0 and (kv_heads % tp == 0 or tp % kv_heads == 0)
    ]


def check_heads(heads: int, kv_heads: int, tp_size: int) -> None:
    """Raises ConfigError when attention cannot be split over ``tp_size`` ranks."""
    sizes = tensor_parallel_sizes(heads, kv_heads)
    if tp_size not in sizes:
        raise ConfigError(
            f"{heads} heads and {kv_heads} KV heads cannot be split over {tp_size} ranks.",
            f"Choose tensor parallelism of {', '.join(map(str, sizes))}.",
        )
