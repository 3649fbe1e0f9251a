"""What runner and loader may ask of a model of any architecture."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from torch import Tensor, nn

from torpor_protocol.config import EngineConfig
from torpor_worker.layers.attention_interface import AttentionRun
from torpor_worker.layers.loadable import Part, ShardedModule
from torpor_worker.parallel.groups import ParallelGroups


@dataclass(frozen=True)
class Target:
    """Where one checkpoint tensor goes."""

    layer: ShardedModule
    part: Part


class ShardedModel(nn.Module):
    """This rank's share of a model: the layers of its stage, its slice of each.

    Every architecture has the same constructor, called inside ``layers.building.building``.
    """

    def __init__(self, *, config: EngineConfig, groups: ParallelGroups, prefix: str = "") -> None:
        super().__init__()
        self.config = config
        self.groups = groups
        self.prefix = prefix
        # Checksum of each loaded weight by name, from the first load; a reload must equal it.
        self.checksums: dict[str, int] = {}

    @abstractmethod
    def forward(
        self,
        input_ids: Tensor | None,
        positions: Tensor,
        attention: AttentionRun,
        hidden: Tensor | None = None,
    ) -> Tensor:
        """Run this stage over the step's n tokens.

        ``input_ids`` int64 [n] on the first stage, ``hidden`` [n, hidden] of the stage before on
        the others; ``positions`` int64 [n]. Returns [n, hidden], normalised on the last stage.
        """

    @abstractmethod
    def compute_logits(self, hidden: Tensor) -> Tensor | None:
        """[m, hidden] -> float32 [m, vocab] on the output rank, None on every other. All ranks of
        the last stage must call it."""

    @abstractmethod
    def targets(self) -> dict[str, Target | None]:
        """Every tensor that a checkpoint of this architecture must have, in the order of loading
        (large layers first), and its place here; None when another stage holds it."""

    @abstractmethod
    def ignores(self, name: str) -> bool:
        """True for a tensor that a checkpoint may have and the model does not want."""
