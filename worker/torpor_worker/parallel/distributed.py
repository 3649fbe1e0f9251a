"""Process groups over torch.distributed: gloo between CPUs, NCCL between accelerators."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from torpor_worker.parallel.groups import ParallelGroups


class DistributedGroups(ParallelGroups):
    """``init_process_group`` must have run. All ranks make this object at the same time: each
    group is formed by every rank in the same order."""

    def __init__(self, rank: int, tp_size: int, pp_size: int, device: torch.device) -> None:
        super().__init__(rank, tp_size, pp_size)
        self._device = device
        stages = [list(range(first, first + tp_size)) for first in self._first_ranks()]
        groups = [dist.new_group(ranks) for ranks in stages]
        self._tp_group = groups[self.pp_rank]
        self._tp_root = stages[self.pp_rank][0]
        self._sending: tuple[dist.Work, Tensor] | None = None

    def _first_ranks(self) -> range:
        return range(0, self.world_size, self.tp_size)

    def tp_all_reduce(self, tensor: Tensor) -> Tensor:
        if self.tp_size > 1:
            dist.all_reduce(tensor, group=self._tp_group)
        return tensor

    def tp_gather(self, tensor: Tensor) -> list[Tensor] | None:
        if self.tp_size == 1:
            return [tensor]
        parts = None
        if self.tp_rank == 0:
            parts = [torch.empty_like(tensor) for _ in range(self.tp_size)]
        dist.gather(tensor, parts, dst=self._tp_root, group=self._tp_group)
        return parts

    def world_broadcast(self, tensor: Tensor, src: int) -> Tensor:
        dist.broadcast(tensor, src=src)
        return tensor

    def send_next(self, tensor: Tensor) -> None:
        # The tensor of the send before is kept until here, and one send at a time is enough:
        # the next stage cannot take two.
        self._wait_sent()
        work = dist.isend(tensor, dst=self.rank + self.tp_size)
        if work is not None:
            self._sending = work, tensor

    def recv_previous(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        tensor = torch.empty(tuple(shape), dtype=dtype, device=self._device)
        dist.recv(tensor, src=self.rank - self.tp_size)
        return tensor

    def barrier(self) -> None:
        # A broadcast of a host tensor goes over gloo everywhere; a barrier would choose a device.
        for source in range(self.world_size):
            dist.broadcast(torch.zeros(1), src=source)

    def close(self) -> None:
        self._wait_sent()
        dist.destroy_process_group()

    def _wait_sent(self) -> None:
        if self._sending is not None:
            work, _ = self._sending
            work.wait()
            self._sending = None
