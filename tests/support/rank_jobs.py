"""What the ranks of a world do in tests; run by ``rank_host``, checked by the test."""

from __future__ import annotations

import json
import time
from pathlib import Path

import torch
from safetensors.torch import save_file

from greedy_run import generate
from load_peak import LoadPeak
from torpor_protocol.config import ParallelConfig, RankAssignment
from torpor_protocol.errors import GroupLost
from torpor_worker.layers.linear_choice import LinearName, can_pack
from torpor_worker.loader import load_weights, reload_weights
from torpor_worker.memory import WEIGHTS
from torpor_worker.memory.cpu import CpuMemoryPool
from torpor_worker.models import build_model
from torpor_worker.parallel import ParallelGroups, init_groups, shared_region
from torpor_worker.parallel.collectives import SharedCollectives
from torpor_worker.parallel.distributed import DistributedGroups
from torpor_worker.parallel.exchange import SLOT_BYTES
from torpor_worker.platforms import select_platform
from worker_configs import LoneRank, engine_config

GROUP = "ab" * 16


def join(rank: int, folder: Path, tensor: int, pipeline: int) -> ParallelGroups:
    """The rank's groups, met through a file in ``folder``."""
    parallel = ParallelConfig(tensor, pipeline)
    assignment = RankAssignment(rank, rank, parallel.world_size, GROUP, f"file://{folder}/store")
    return init_groups(parallel, assignment, select_platform("cpu"), timeout=60)


def generate_tokens(
    rank: int,
    folder: Path,
    *,
    model: str,
    tensor: int,
    pipeline: int,
    linear: LinearName | None,
    prompts: list[list[int]],
    steps: int,
) -> None:
    """Load the model's share, generate, and leave tokens.json (every rank) and the logits."""
    groups = join(rank, folder, tensor, pipeline)
    config = engine_config(Path(model), tensor=tensor, pipeline=pipeline)
    built = build_model(config, groups, select_platform("cpu").pool(), linear=linear)
    load_weights(built, config, groups)
    tokens, logits = generate(built, prompts, steps)
    (folder / f"tokens-{rank}.json").write_text(json.dumps(tokens))
    assert (logits is not None) == (rank == groups.output_rank)
    if logits is not None:
        save_file({"logits": logits.contiguous()}, folder / "logits.safetensors")
    groups.close()


def exchange(
    rank: int, folder: Path, *, tensor: int, pipeline: int, dtype: str, apart: bool = False
) -> None:
    """Every operation once, in ``dtype``; asserts what must hold on this rank. ``apart``: as if
    each rank were on a machine of its own."""
    if apart:
        shared_region._machine = lambda: f"machine {rank}"
    groups = join(rank, folder, tensor, pipeline)
    assert isinstance(groups, DistributedGroups)
    shared = isinstance(groups._stage, SharedCollectives)
    assert shared == (tensor > 1 and not apart)
    kind = getattr(torch, dtype)
    assert (groups.tp_rank, groups.pp_rank) == (rank % tensor, rank // tensor)
    stage = [groups.pp_rank * tensor + other for other in range(tensor)]
    total = groups.tp_all_reduce(torch.full((3, 5), float(rank), dtype=kind))
    assert total.dtype == kind and bool((total == sum(stage)).all())
    parts = groups.tp_gather(torch.full((2, 2), float(rank), dtype=kind))
    assert (parts is None) == (groups.tp_rank != 0)
    if parts is not None:
        assert [int(part[0, 0]) for part in parts] == stage
    check_large(groups, kind)
    tokens = torch.full((4,), rank, dtype=torch.int64)
    assert groups.world_broadcast(tokens, groups.output_rank).tolist() == [groups.output_rank] * 4
    for message in range(3):
        if not groups.is_first_stage:
            received = groups.recv_previous((2, 7), kind)
            assert bool((received == rank - tensor + message).all())
        if not groups.is_last_stage:
            groups.send_next(torch.full((2, 7), float(rank + message), dtype=kind))
    groups.barrier()
    groups.close()


def check_large(groups: ParallelGroups, kind: torch.dtype) -> None:
    """Tensors of several slots and a bit, every element of its own."""
    rows, columns = 3, SLOT_BYTES // kind.itemsize - 5
    base = torch.arange(rows * columns).remainder(97).view(rows, columns)
    mine = (base + groups.tp_rank).to(kind)
    parts = groups.tp_gather(mine)
    if parts is not None:
        assert all(torch.equal(part, (base + i).to(kind)) for i, part in enumerate(parts))
    total = groups.tp_all_reduce(mine)
    others = sum(range(groups.tp_size))
    assert torch.equal(total, (base * groups.tp_size + others).to(kind))
    copied = groups.world_broadcast(torch.full((rows, columns), groups.rank, dtype=kind), 0)
    assert not copied.any()


def wait_in_vain(rank: int, folder: Path, *, victim: int) -> None:
    """One rank of two stays away from a collective; the other's must end with an error."""
    parallel = ParallelConfig(2, 1)
    assignment = RankAssignment(rank, rank, 2, GROUP, f"file://{folder}/store")
    groups = init_groups(parallel, assignment, select_platform("cpu"), timeout=3)
    groups.barrier()
    if rank == victim:
        while not (folder / "error.txt").exists():
            time.sleep(0.05)
        return
    try:
        groups.tp_all_reduce(torch.zeros(8))
    except GroupLost as error:
        (folder / "error.txt").write_text(str(error))


def measure_load(rank: int, folder: Path, *, model: str, tensor: int, index: int) -> None:
    """Load rank ``index``'s share of ``tensor`` alone, twice with a sleep of level 2 between, and
    leave memory.json: peaks over the memory before (bytes) and the size of the rank's weights."""
    groups, pool = LoneRank(index, tensor), CpuMemoryPool()
    config = engine_config(Path(model), tensor=tensor)
    # Kernels are generated when first used; a rank that only loads still needs them later.
    can_pack(torch.float32)
    built = build_model(config, groups, pool)
    peak, peaks = LoadPeak("self"), []
    for load in (load_weights, reload_weights):
        peak.start_anew()
        load(built, config, groups)
        peaks.append(peak.most())
        pool.release(WEIGHTS)
        pool.restore(WEIGHTS)
    result = {"peaks": peaks, "weights": pool.bytes(WEIGHTS), "left": peak.left()}
    (folder / "memory.json").write_text(json.dumps(result))


def lose_a_peer(rank: int, folder: Path, *, victim: int) -> None:
    """One rank of two leaves without a word; the other's next collective must fail soon."""
    groups = join(rank, folder, 2, 1)
    groups.barrier()
    if rank == victim:
        return
    try:
        for _ in range(2):
            groups.tp_all_reduce(torch.zeros(8))
    except (GroupLost, RuntimeError) as error:
        (folder / "error.txt").write_text(str(error))
