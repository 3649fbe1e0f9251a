"""Loading fills a rank's slices, tells how far it is, and a reload must give the same weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from greedy_run import GreedyRun
from tiny_models import make_tiny_llama
from torpor_protocol.config import EngineConfig
from torpor_worker.layers.linear_choice import LinearName
from torpor_worker.loader import WeightsCorrupt, load_weights, reader, reload_weights
from torpor_worker.loader.checksum import checksum
from torpor_worker.memory import WEIGHTS
from torpor_worker.memory.cpu import CpuMemoryPool
from torpor_worker.models import ShardedModel, build_model
from torpor_worker.parallel import SingleRank
from worker_configs import LoneRank, engine_config

FILE = "model.safetensors"


def loaded(
    folder: Path, linear: LinearName, groups: SingleRank | None = None
) -> tuple[ShardedModel, EngineConfig, CpuMemoryPool]:
    groups, pool = groups or SingleRank(), CpuMemoryPool()
    config = engine_config(folder, tensor=groups.tp_size, pipeline=groups.pp_size)
    model = build_model(config, groups, pool, linear=linear)
    load_weights(model, config, groups)
    return model, config, pool


def logits(model: ShardedModel) -> Tensor:
    result = GreedyRun(model, [[1, 2, 3]]).step()[1]
    assert result is not None
    return result


@pytest.mark.parametrize("linear", ["plain", "packed"])
@pytest.mark.parametrize("tie", [False, True])
def test_reload_gives_the_same_weights(tmp_path: Path, linear: LinearName, tie: bool) -> None:
    model, config, pool = loaded(make_tiny_llama(tmp_path, tie=tie), linear)
    before, size = logits(model), pool.bytes(WEIGHTS)
    for _ in range(2):
        assert pool.release(WEIGHTS) > 0
        pool.restore(WEIGHTS)
        reload_weights(model, config, model.groups)
        assert torch.equal(logits(model), before)
        assert pool.bytes(WEIGHTS) == size


@pytest.mark.parametrize("linear", ["plain", "packed"])
def test_other_weights_are_refused(tmp_path: Path, linear: LinearName) -> None:
    folder = make_tiny_llama(tmp_path)
    model, config, _ = loaded(folder, linear)
    tensors = load_file(folder / FILE)
    tensors["model.layers.1.mlp.up_proj.weight"][3, 5] += 1
    save_file(tensors, folder / FILE)
    with pytest.raises(WeightsCorrupt, match=r"1 weights in .* model\.layers\.1\.mlp\.gate_up_pro"):
        reload_weights(model, config, model.groups)


@pytest.mark.parametrize("files", [1, 3])
@pytest.mark.parametrize(("tp", "pp"), [(1, 1), (2, 1), (1, 2), (4, 2)])
def test_progress(tmp_path: Path, tp: int, pp: int, files: int) -> None:
    folder = make_tiny_llama(tmp_path, files=files, dtype="bfloat16")
    config = engine_config(folder, tensor=tp, pipeline=pp)
    for rank in range(tp * pp):
        groups, pool = LoneRank(rank, tp, pp), CpuMemoryPool()
        model = build_model(config, groups, pool, linear="plain")
        seen: list[tuple[int, int, int, int]] = []
        load_weights(model, config, groups, lambda *report: seen.append(report))  # noqa: B023
        tensors, total_tensors, done, total = seen[-1]
        assert len(seen) == tensors == total_tensors
        # float32 in the pool, nothing padded here.
        assert done == total == pool.bytes(WEIGHTS)
        assert [report[2] for report in seen] == sorted(report[2] for report in seen)


def test_large_tensors_come_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_tiny_llama(tmp_path)
    whole = [loaded(folder, "plain", LoneRank(rank, 2))[0] for rank in (0, 1)]
    monkeypatch.setattr(reader, "PIECE_BYTES", 1_000)
    monkeypatch.setattr(reader, "MAPPED_BYTES", 2_500)
    pieces = [loaded(folder, "plain", LoneRank(rank, 2))[0] for rank in (0, 1)]
    for expected, found in zip(whole, pieces, strict=True):
        assert expected.checksums == found.checksums


def test_ranks_hold_the_slices(tmp_path: Path) -> None:
    folder = make_tiny_llama(tmp_path, intermediate=130)
    tensors = load_file(folder / FILE)
    state = loaded(folder, "plain", LoneRank(3, 4))[0].state_dict()
    name = "layers.0.mlp"
    gate_up = state[f"{name}.gate_up_proj.weight"]
    assert torch.equal(gate_up[:31], tensors[f"model.{name}.gate_proj.weight"][99:])
    assert torch.equal(gate_up[33:64], tensors[f"model.{name}.up_proj.weight"][99:])
    assert not gate_up[31:33].any() and not gate_up[64:].any()
    down = state[f"{name}.down_proj.weight"]
    assert torch.equal(down[:, :31], tensors[f"model.{name}.down_proj.weight"][:, 99:])
    assert not down[:, 31:].any()
    qkv = state["layers.0.self_attn.qkv_proj.weight"]
    assert torch.equal(qkv[16:32], tensors["model.layers.0.self_attn.k_proj.weight"][16:])


@given(st.integers(1, 9_000), st.data())
def test_checksum_sees_every_element(size: int, data: st.DataObject) -> None:
    tensor = torch.arange(size, dtype=torch.float32)
    before = checksum(tensor)
    index = data.draw(st.integers(0, size - 1))
    tensor[index] += 0.5
    assert checksum(tensor) != before


def test_checksum_sees_order() -> None:
    tensor = torch.arange(4_096, dtype=torch.float32)
    assert checksum(tensor) != checksum(tensor.roll(1_024))
    assert checksum(tensor[:3].bfloat16()) != checksum(tensor[1:4].bfloat16())
