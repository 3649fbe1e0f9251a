"""What the loader sees of a layer: the parts it wants, where they go, and a hook when all are in.

A layer is loaded in one go (``begin_load``, all its parts, ``finish_load``), so a linear method may
hold the plain weight of one layer at a time while it makes another form of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from torpor_worker.layers.sharding import Shard

WHOLE = ""  # the part of a parameter that is filled by one checkpoint tensor


@dataclass(frozen=True)
class Part:
    """One checkpoint tensor's place: ``parameter`` of a layer, and which section of it."""

    parameter: str
    section: str = WHOLE


class ShardedModule(nn.Module):
    """Base of every layer with weights. ``parts`` is complete after the constructor."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self.prefix = prefix
        self.parts: dict[Part, Shard] = {}

    def begin_load(self) -> None:
        """Called before the first part of a load."""

    def destination(self, parameter: str) -> Tensor:
        """The plain tensor that the parts of a parameter are copied into."""
        return self.get_parameter(parameter)

    def finish_load(self) -> None:
        """Called after the last part of a load."""

    def stored(self) -> Iterator[tuple[str, Tensor]]:
        """Name and memory of everything that a load fills, for checksums."""
        for name, parameter in self.named_parameters(recurse=False):
            yield f"{self.prefix}.{name}", parameter.data
