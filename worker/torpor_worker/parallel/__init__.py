"""Tensor and pipeline parallelism: who this rank is and how it reaches the others."""

from torpor_worker.parallel.groups import ParallelGroups, SingleRank
from torpor_worker.parallel.rendezvous import init_groups
from torpor_worker.parallel.stages import stage_layers

__all__ = ["ParallelGroups", "SingleRank", "init_groups", "stage_layers"]
