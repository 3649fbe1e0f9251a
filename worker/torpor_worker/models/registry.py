"""From the architecture's name in ``config.json`` to a model on this rank."""

from __future__ import annotations

import importlib
import logging
from collections import Counter

from torpor_protocol.config import EngineConfig
from torpor_protocol.errors import ModelError
from torpor_worker.layers.building import BuildContext, building
from torpor_worker.layers.linear import Linear
from torpor_worker.layers.linear_choice import LINEAR_METHODS, LinearName, can_pack, choose_linear
from torpor_worker.layers.linear_method import LinearMethod
from torpor_worker.memory.pool import MemoryPool
from torpor_worker.models.base import ShardedModel
from torpor_worker.parallel.groups import ParallelGroups
from torpor_worker.platforms.base import torch_dtype

ARCHITECTURES = {
    "LlamaForCausalLM": "torpor_worker.models.llama:LlamaForCausalLM",
}

_log = logging.getLogger(__name__)


def model_class(architecture: str) -> type[ShardedModel]:
    """Raises ModelError for an architecture that is not known."""
    if architecture not in ARCHITECTURES:
        raise ModelError(
            f"Architecture {architecture!r} is not supported.",
            f"Use a model of one of these: {', '.join(sorted(ARCHITECTURES))}.",
        )
    module, _, name = ARCHITECTURES[architecture].partition(":")
    found: type[ShardedModel] = getattr(importlib.import_module(module), name)
    return found


def build_model(
    config: EngineConfig,
    groups: ParallelGroups,
    pool: MemoryPool,
    prefix: str = "",
    *,
    linear: LinearName | None = None,
) -> ShardedModel:
    """This rank's share of the model, with weights still zero.

    ``linear``: the linear method of all layers; None chooses by size (``layers.linear_choice``).
    Raises ModelError (architecture), ConfigError (split) and MemoryBudgetError.
    """
    device = pool.device.type
    packs = device == "cpu" and can_pack(torch_dtype(config.model.dtype))

    def linear_method(elements: int) -> type[LinearMethod]:
        return LINEAR_METHODS[linear or choose_linear(device, packs, elements)]

    with building(BuildContext(pool, linear_method)):
        model = model_class(config.model.architecture)(config=config, groups=groups, prefix=prefix)
    _log.info("linear layers: %s", _count_methods(model))
    return model.eval()


def _count_methods(model: ShardedModel) -> str:
    layers = [layer for layer in model.modules() if isinstance(layer, Linear)]
    counts = Counter(type(layer.method).__name__ for layer in layers)
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
