"""Ranks meet under their group id, and every operation gives what its name says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from rank_host import RankHost
from torpor_protocol.config import ParallelConfig, RankAssignment
from torpor_protocol.errors import ConfigError, GroupLost
from torpor_worker.parallel import SingleRank, init_groups, stage_layers
from torpor_worker.platforms import select_platform

GROUP = "00" * 16


@pytest.fixture(scope="module")
def host() -> Iterator[RankHost]:
    with RankHost() as host:
        yield host


@pytest.mark.parametrize(
    ("layers", "stages", "sizes"),
    [
        (4, 1, [4]),
        (4, 2, [2, 2]),
        (30, 4, [7, 8, 8, 7]),
        (5, 2, [3, 2]),
        (11, 4, [3, 3, 3, 2]),
        (3, 3, [1, 1, 1]),
    ],
)
def test_stages(layers: int, stages: int, sizes: list[int]) -> None:
    ranges = [stage_layers(layers, stages, stage) for stage in range(stages)]
    assert [len(layer) for layer in ranges] == sizes
    assert [layer for stage in ranges for layer in stage] == list(range(layers))


def test_an_empty_stage_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"2 layers .* 3 pipeline stages\. .* at most 2"):
        stage_layers(2, 3, 0)


def assignment(store: str, rank: int = 0) -> RankAssignment:
    return RankAssignment(rank, rank, 2, GROUP, store)


def test_one_rank_needs_nobody() -> None:
    platform = select_platform("cpu")
    groups = init_groups(ParallelConfig(), assignment("none"), platform)
    assert isinstance(groups, SingleRank) and not dist.is_initialized()
    assert groups.is_first_stage and groups.is_last_stage and groups.output_rank == 0
    tensor = torch.ones(3)
    assert groups.tp_all_reduce(tensor) is tensor and groups.world_broadcast(tensor, 0) is tensor
    gathered = groups.tp_gather(tensor)
    assert gathered is not None and gathered[0] is tensor
    groups.barrier()
    with pytest.raises(ValueError, match="no next stage"):
        groups.send_next(tensor)
    with pytest.raises(ValueError, match="no previous stage"):
        groups.recv_previous((1,), torch.float32)
    groups.close()


@pytest.mark.parametrize("store", ["", "file:", "tcp://host", "udp://1.2.3.4:5", "tcp://h:x"])
def test_a_bad_address_is_refused(store: str) -> None:
    with pytest.raises((ConfigError, GroupLost), match=r"rendezvous address|could not join"):
        init_groups(ParallelConfig(2), assignment(store), select_platform("cpu"), timeout=1)


def test_who_comes_alone_gives_up(tmp_path: Path) -> None:
    """A rank of an older formation finds nobody, though the others' store is the same file."""
    started = time.monotonic()
    with pytest.raises(GroupLost, match="Rank 0 could not join its group") as caught:
        init_groups(
            ParallelConfig(2),
            assignment(f"file://{tmp_path}/store"),
            select_platform("cpu"),
            timeout=1,
        )
    assert caught.value.reason == "GroupForming"
    assert time.monotonic() - started < 30
    assert not dist.is_initialized()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(("tensor", "pipeline"), [(2, 2), (1, 3), (3, 1)])
def test_operations(host: RankHost, tmp_path: Path, tensor: int, pipeline: int, dtype: str) -> None:
    world = tensor * pipeline
    arguments = {"tensor": tensor, "pipeline": pipeline, "dtype": dtype}
    assert host.run("rank_jobs:exchange", world, tmp_path, **arguments) == [0] * world


@pytest.mark.parametrize(("tensor", "pipeline"), [(2, 2), (3, 1)])
def test_operations_between_machines(
    host: RankHost, tmp_path: Path, tensor: int, pipeline: int
) -> None:
    world = tensor * pipeline
    arguments = {"tensor": tensor, "pipeline": pipeline, "dtype": "float32", "apart": True}
    assert host.run("rank_jobs:exchange", world, tmp_path, **arguments) == [0] * world


def test_a_lost_peer_is_an_error_at_once(host: RankHost, tmp_path: Path) -> None:
    started = time.monotonic()
    assert host.run("rank_jobs:lose_a_peer", 2, tmp_path, victim=1) == [0, 0]
    assert "Rank 1 of the stage has ended." in (tmp_path / "error.txt").read_text()
    assert time.monotonic() - started < 30


def test_a_peer_that_does_not_come_is_an_error_in_time(host: RankHost, tmp_path: Path) -> None:
    assert host.run("rank_jobs:wait_in_vain", 2, tmp_path, victim=1) == [0, 0]
    assert "Rank 1 of the stage does not come." in (tmp_path / "error.txt").read_text()
