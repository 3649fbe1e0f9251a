"""Embedding and head, split over the ranks of a stage along the vocabulary."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from torpor_protocol.config import EngineConfig
from torpor_worker.layers.building import new_parameter
from torpor_worker.layers.linear import ColumnParallelLinear
from torpor_worker.layers.loadable import Part, ShardedModule
from torpor_worker.layers.packed import PackedLinear
from torpor_worker.layers.sharding import Shard, split
from torpor_worker.parallel.groups import ParallelGroups
from torpor_worker.platforms.base import torch_dtype


class ParallelLMHead(ColumnParallelLinear):
    """Hidden rows to logits. A tied embedding on the same stage reads its weight from here."""

    def __init__(self, *, config: EngineConfig, groups: ParallelGroups, prefix: str) -> None:
        model = config.model
        super().__init__(
            model.hidden_size, model.vocab_size, config=config, groups=groups, prefix=prefix
        )
        self._groups = groups
        self._vocab_size = model.vocab_size

    def rows(self, indices: Tensor) -> Tensor:
        """Rows of this rank's slice: [n] -> [n, hidden]."""
        return self.method.rows(indices)

    def tie(self) -> None:
        """Before the first load: rows will be read."""
        if isinstance(self.method, PackedLinear):
            self.method.reads_rows = True

    def logits(self, hidden: Tensor) -> Tensor | None:
        """[m, hidden] -> [m, vocab] float32 on tensor-parallel rank 0, None on the others."""
        parts = self._groups.tp_gather(self(hidden))
        if parts is None:
            return None
        joined = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        return joined[:, : self._vocab_size].float()


class VocabParallelEmbedding(ShardedModule):
    """Token ids to hidden rows. ``head``: the tied head of the same stage, whose weight is read;
    the layer then has no weight of its own."""

    def __init__(
        self,
        *,
        head: ParallelLMHead | None = None,
        config: EngineConfig,
        groups: ParallelGroups,
        prefix: str,
    ) -> None:
        super().__init__(prefix)
        model = config.model
        self._groups = groups
        self._span = split(model.vocab_size, groups.tp_size, groups.tp_rank)
        if head is not None:
            head.tie()
            self._rows = head.rows
            return
        shape = (model.vocab_size, model.hidden_size)
        local = (self._span.size, model.hidden_size)
        self.weight = new_parameter(local, torch_dtype(model.dtype))
        self.parts[Part("weight")] = Shard(shape, 0, self._span.start, self._span.stop)
        self._rows = self._own_rows

    def _own_rows(self, indices: Tensor) -> Tensor:
        return F.embedding(indices, self.weight)

    def forward(self, ids: Tensor) -> Tensor:
        """[n] int64 -> [n, hidden]."""
        if self._groups.tp_size == 1:
            return self._rows(ids)
        local = ids - self._span.start
        other = (local < 0) | (local >= self._span.size)
        rows = self._rows(local.masked_fill(other, 0)).masked_fill(other.unsqueeze(1), 0)
        return self._groups.tp_all_reduce(rows)
