"""Fills a model's weights from its checkpoint: plan what goes where, then copy layer by layer.

A rank reads only its own rows and columns. Loading the same model again (waking from level 2) must
give the same bytes as the first time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter, itemgetter
from pathlib import Path

from torpor_protocol.config import EngineConfig
from torpor_protocol.errors import ModelError
from torpor_worker.layers.loadable import Part, ShardedModule
from torpor_worker.layers.sharding import Shard
from torpor_worker.loader.checkpoint import TensorEntry, read_checkpoint
from torpor_worker.loader.checksum import checksum
from torpor_worker.loader.errors import WeightsCorrupt
from torpor_worker.loader.reader import SliceReader
from torpor_worker.memory.pages import trim_heap
from torpor_worker.models.base import ShardedModel
from torpor_worker.parallel.groups import ParallelGroups
from torpor_worker.platforms.base import torch_dtype

LoadProgress = Callable[[int, int, int, int], None]
"""(tensors_done, tensors_total, bytes_done, bytes_total) of this rank; bytes as they are run."""

_MATCH = "Use the config.json that belongs to these weights."


@dataclass(frozen=True)
class Copy:
    """One checkpoint tensor's way to its place on this rank."""

    name: str
    entry: TensorEntry
    layer: ShardedModule
    part: Part

    @property
    def shard(self) -> Shard:
        return self.layer.parts[self.part]


def load_weights(
    model: ShardedModel,
    config: EngineConfig,
    groups: ParallelGroups,
    progress: LoadProgress | None = None,
) -> None:
    """Fill every weight of this rank and remember a checksum of each.

    Raises ModelError: no safetensors, missing, unknown or misshapen tensors; WeightsCorrupt:
    a file is damaged.
    """
    _fill(model, config, groups, progress)
    model.checksums = _checksums(model)


def reload_weights(
    model: ShardedModel,
    config: EngineConfig,
    groups: ParallelGroups,
    progress: LoadProgress | None = None,
) -> None:
    """Fill the weights again after their memory was released and restored.

    Raises WeightsCorrupt when they are not what the first load gave, else as ``load_weights``.
    """
    _fill(model, config, groups, progress)
    changed = sorted(
        name for name, found in _checksums(model).items() if model.checksums.get(name) != found
    )
    if changed:
        raise WeightsCorrupt(
            f"{len(changed)} weights in {config.model.path} differ from those first loaded on rank "
            f"{groups.rank}, {changed[0]} among them.",
            "Restore the files of the model, or restart the replica to serve the new ones.",
        )


def plan_copies(model: ShardedModel, checkpoint: dict[str, TensorEntry]) -> list[Copy]:
    """What this rank reads, in the order of the model's targets.

    Raises ModelError when the checkpoint and the model do not have the same tensors.
    """
    targets = model.targets()
    missing = [name for name in targets if name not in checkpoint]
    if missing:
        raise ModelError(
            f"The checkpoint lacks {len(missing)} tensors, {missing[0]!r} among them.", _MATCH
        )
    unknown = [name for name in checkpoint if name not in targets and not model.ignores(name)]
    if unknown:
        raise ModelError(
            f"The checkpoint has {len(unknown)} tensors that the model has no place for, "
            f"{unknown[0]!r} among them.",
            _MATCH,
        )
    copies = [
        Copy(name, checkpoint[name], target.layer, target.part)
        for name, target in targets.items()
        if target is not None
    ]
    _check_complete(model, copies)
    return copies


def _check_complete(model: ShardedModel, copies: list[Copy]) -> None:
    """Every part of every layer is read once, and each layer's parts one after the other."""
    filled = [(copy.layer.prefix, copy.part) for copy in copies]
    layers = [layer for layer in model.modules() if isinstance(layer, ShardedModule)]
    wanted = {(layer.prefix, part) for layer in layers for part in layer.parts}
    if len(filled) != len(wanted) or set(filled) != wanted:
        raise ValueError("the model's table of checkpoint tensors does not match its layers")
    runs = [prefix for prefix, _ in groupby(filled, key=itemgetter(0))]
    if len(runs) != len(set(runs)):
        raise ValueError("the model's table of checkpoint tensors returns to a layer")


def _fill(
    model: ShardedModel,
    config: EngineConfig,
    groups: ParallelGroups,
    progress: LoadProgress | None,
) -> None:
    copies = plan_copies(model, read_checkpoint(Path(config.model.path)))
    item = torch_dtype(config.model.dtype).itemsize
    total = sum(copy.shard.count for copy in copies) * item
    tensors = done = 0
    with SliceReader() as reader:
        for layer, parts in groupby(copies, key=attrgetter("layer")):
            layer.begin_load()
            for copy in parts:
                destination = layer.destination(copy.part.parameter)
                reader.copy(copy.name, copy.entry, copy.shard, destination)
                del destination
                tensors, done = tensors + 1, done + copy.shard.count * item
                if progress is not None:
                    progress(tensors, len(copies), done, total)
            layer.finish_load()
    trim_heap()


def _checksums(model: ShardedModel) -> dict[str, int]:
    return {
        name: checksum(tensor)
        for layer in model.modules()
        if isinstance(layer, ShardedModule)
        for name, tensor in layer.stored()
    }
