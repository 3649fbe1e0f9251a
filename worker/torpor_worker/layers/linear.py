"""Linear layers split over the ranks of a stage.

Column-parallel layers split their outputs (rows of the weight), row-parallel ones their inputs
(columns of the weight) and sum the partial results. One of each in turn needs one all-reduce.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from torpor_protocol.config import EngineConfig
from torpor_worker.layers.building import new_linear_method, new_parameter
from torpor_worker.layers.loadable import WHOLE, Part, ShardedModule
from torpor_worker.layers.sharding import Shard, Span, check_heads, scaled, split, split_kv_heads
from torpor_worker.parallel.groups import ParallelGroups
from torpor_worker.platforms.base import torch_dtype


class Linear(ShardedModule):
    """A weight [rows, columns] and perhaps a bias of one rank, behind a linear method."""

    def __init__(
        self, rows: int, columns: int, bias: int, *, config: EngineConfig, prefix: str
    ) -> None:
        """``bias``: its length, 0 for none."""
        super().__init__(prefix)
        dtype = torch_dtype(config.model.dtype)
        self.method = new_linear_method(rows * columns)
        self.method.create_weights(self, rows, columns, dtype)
        self.bias = new_parameter((bias,), dtype) if bias else None

    def begin_load(self) -> None:
        self.method.begin_load()

    def destination(self, parameter: str) -> Tensor:
        return self.method.plain if parameter == "weight" else super().destination(parameter)

    def finish_load(self) -> None:
        self.method.process_after_load()

    def stored(self) -> Iterator[tuple[str, Tensor]]:
        for name, tensor in self.method.stored():
            yield f"{self.prefix}.{name}", tensor
        if self.bias is not None:
            yield f"{self.prefix}.bias", self.bias.data


@dataclass(frozen=True)
class Section:
    """Outputs of one checkpoint tensor: ``span`` of its ``total`` rows."""

    name: str
    total: int
    span: Span


class SectionedLinear(Linear):
    """Several projections of the same input as one matrix, each split by its own rule.

    [n, columns] -> [n, rows of this rank], the sections one after the other.
    """

    def __init__(
        self,
        columns: int,
        sections: Sequence[Section],
        *,
        bias: bool,
        config: EngineConfig,
        prefix: str,
    ) -> None:
        rows = sum(section.span.size for section in sections)
        super().__init__(rows, columns, rows if bias else 0, config=config, prefix=prefix)
        offset = 0
        for section in sections:
            span = section.span
            place = (0, span.start, span.stop, offset)
            self.parts[Part("weight", section.name)] = Shard((section.total, columns), *place)
            if bias:
                self.parts[Part("bias", section.name)] = Shard((section.total,), *place)
            offset += span.size

    def forward(self, x: Tensor) -> Tensor:
        return self.method.apply(x, self.bias)


class ColumnParallelLinear(SectionedLinear):
    """One projection, its outputs split evenly. -> [n, ceil(rows / tp)]."""

    def __init__(
        self,
        columns: int,
        rows: int,
        *,
        bias: bool = False,
        config: EngineConfig,
        groups: ParallelGroups,
        prefix: str,
    ) -> None:
        section = Section(WHOLE, rows, split(rows, groups.tp_size, groups.tp_rank))
        super().__init__(columns, [section], bias=bias, config=config, prefix=prefix)


class MergedColumnParallelLinear(SectionedLinear):
    """Projections of the given sizes (gate, up), each split evenly and padded by itself."""

    def __init__(
        self,
        columns: int,
        rows: dict[str, int],
        *,
        bias: bool = False,
        config: EngineConfig,
        groups: ParallelGroups,
        prefix: str,
    ) -> None:
        sections = [
            Section(name, total, split(total, groups.tp_size, groups.tp_rank))
            for name, total in rows.items()
        ]
        super().__init__(columns, sections, bias=bias, config=config, prefix=prefix)


class QKVParallelLinear(SectionedLinear):
    """q, k and v. Whole heads per rank; with fewer KV heads than ranks neighbours hold the same.

    ``num_heads`` and ``num_kv_heads`` are this rank's. Raises ConfigError when heads do not split.
    """

    def __init__(
        self, *, bias: bool, config: EngineConfig, groups: ParallelGroups, prefix: str
    ) -> None:
        model = config.model
        check_heads(model.num_heads, model.num_kv_heads, groups.tp_size)
        q = split(model.num_heads, groups.tp_size, groups.tp_rank)
        kv = split_kv_heads(model.num_kv_heads, groups.tp_size, groups.tp_rank)
        dim = model.head_dim
        sections = [
            Section("q", model.num_heads * dim, scaled(q, dim)),
            Section("k", model.num_kv_heads * dim, scaled(kv, dim)),
            Section("v", model.num_kv_heads * dim, scaled(kv, dim)),
        ]
        super().__init__(model.hidden_size, sections, bias=bias, config=config, prefix=prefix)
        self.num_heads, self.num_kv_heads = q.size, kv.size


class RowParallelLinear(Linear):
    """Inputs split evenly, outputs summed over the stage. [n, ceil(columns / tp)] -> [n, rows]."""

    def __init__(
        self,
        columns: int,
        rows: int,
        *,
        bias: bool = False,
        config: EngineConfig,
        groups: ParallelGroups,
        prefix: str,
    ) -> None:
        span = split(columns, groups.tp_size, groups.tp_rank)
        super().__init__(rows, span.size, rows if bias else 0, config=config, prefix=prefix)
        self.parts[Part("weight")] = Shard((rows, columns), 1, span.start, span.stop)
        if bias:
            self.parts[Part("bias")] = Shard((rows,), 0, 0, rows)
        self._groups = groups
        # Every rank holds the bias, one adds it: the sum must have it once.
        self._added_bias = self.bias if groups.tp_rank == 0 else None

    def forward(self, x: Tensor) -> Tensor:
        return self._groups.tp_all_reduce(self.method.apply(x, self._added_bias))
