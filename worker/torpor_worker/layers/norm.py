"""Root mean square normalisation; every rank holds the whole weight."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from torpor_protocol.config import EngineConfig
from torpor_worker.layers.building import new_parameter
from torpor_worker.layers.loadable import Part, ShardedModule
from torpor_worker.layers.sharding import whole
from torpor_worker.platforms.base import torch_dtype


class RMSNorm(ShardedModule):
    """[n, hidden] -> [n, hidden]."""

    def __init__(self, *, config: EngineConfig, prefix: str) -> None:
        super().__init__(prefix)
        shape = (config.model.hidden_size,)
        self.weight = new_parameter(shape, torch_dtype(config.model.dtype))
        self.parts[Part("weight")] = whole(shape)
        self._eps = config.model.rms_norm_eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self._eps)
