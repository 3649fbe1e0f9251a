"""A world over torch.distributed: gloo between CPUs, NCCL between accelerators."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from torpor_worker.parallel.collectives import StageCollectives
from torpor_worker.parallel.groups import ParallelGroups


class DistributedGroups(ParallelGroups):
    """``stage``: the operations between the ranks of this rank's stage."""

    def __init__(
        self, rank: int, tp_size: int, pp_size: int, device: torch.device, stage: StageCollectives
    ) -> None:
        super().__init__(rank, tp_size, pp_size)
        self._device = device
        self._stage = stage
        self._sending: tuple[dist.Work, Tensor] | None = None

    def tp_all_reduce(self, tensor: Tensor) -> Tensor:
        if self.tp_size > 1:
            self._stage.all_reduce(tensor)
        return tensor

    def tp_gather(self, tensor: Tensor) -> list[Tensor] | None:
        return [tensor] if self.tp_size == 1 else self._stage.gather(tensor)

    def world_broadcast(self, tensor: Tensor, src: int) -> Tensor:
        if self.pp_size == 1:
            self._stage.broadcast(tensor, src)
        else:
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
        self._stage.close()
        dist.destroy_process_group()

    def _wait_sent(self) -> None:
        if self._sending is not None:
            work, _ = self._sending
            work.wait()
            self._sending = None
