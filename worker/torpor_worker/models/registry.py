"""From the architecture's name in ``config.json`` to a model on this rank."""

from __future__ import annotations

import importlib
import logging

from torpor_protocol.config import EngineConfig
from torpor_protocol.errors import ModelError
from torpor_worker.layers.building import BuildContext, building
from torpor_worker.layers.linear_choice import LINEAR_METHODS, LinearName, can_pack, choose_linear
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

    ``linear``: the linear method; None chooses (``layers.linear_choice``).
    Raises ModelError (architecture), ConfigError (split) and MemoryBudgetError.
    """
    if linear is None:
        packs = pool.device.type == "cpu" and can_pack(torch_dtype(config.model.dtype))
        linear, reason = choose_linear(pool.device.type, packs)
        _log.info("linear layers are %s: %s", linear, reason)
    with building(BuildContext(pool, LINEAR_METHODS[linear])):
        model = model_class(config.model.architecture)(config=config, groups=groups, prefix=prefix)
    return model.eval()
