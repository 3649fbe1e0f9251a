"""Packed weights multiply as plain ones do, live in the pool, and give rows to a tied embedding."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torpor_worker.layers import linear_choice, packed
from torpor_worker.layers.linear_choice import LINEAR_METHODS, MIN_PACKED, can_pack, choose_linear
from torpor_worker.layers.linear_method import LinearMethod
from torpor_worker.layers.packed import PackedLinear
from torpor_worker.layers.packed_rows import PackedRows, find_rows
from torpor_worker.memory import STAGING, WEIGHTS
from torpor_worker.memory.cpu import CpuMemoryPool

SHAPES = [(64, 64), (33, 17), (200, 96), (960, 576), (5, 128)]


def weight_of(rows: int, columns: int) -> Tensor:
    return torch.randn((rows, columns), generator=torch.Generator().manual_seed(rows * columns))


def load(method: LinearMethod, weight: Tensor) -> None:
    method.begin_load()
    method.plain.copy_(weight)
    method.process_after_load()


def loaded(name: linear_choice.LinearName, weight: Tensor, *, rows: bool = False) -> LinearMethod:
    method = LINEAR_METHODS[name](CpuMemoryPool())
    method.create_weights(nn.Module(), *weight.shape, torch.float32)
    if isinstance(method, PackedLinear):
        method.reads_rows = rows
    load(method, weight)
    return method


@pytest.mark.parametrize("name", ["plain", "packed"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("tokens", [0, 1, 8, 64])
def test_products(name: linear_choice.LinearName, shape: tuple[int, int], tokens: int) -> None:
    weight = weight_of(*shape)
    x = torch.randn((tokens, shape[1]), generator=torch.Generator().manual_seed(1))
    bias = torch.arange(shape[0], dtype=torch.float32)
    method = loaded(name, weight)
    for added in (None, bias):
        torch.testing.assert_close(
            method.apply(x, added), F.linear(x, weight, added), rtol=1e-5, atol=1e-4
        )


@pytest.mark.parametrize("name", ["plain", "packed"])
@pytest.mark.parametrize("shape", SHAPES)
def test_rows(name: linear_choice.LinearName, shape: tuple[int, int]) -> None:
    weight = weight_of(*shape)
    indices = torch.tensor([shape[0] - 1, 0, 3, 3])
    method = loaded(name, weight, rows=True)
    assert torch.equal(method.rows(indices), weight[indices])


@pytest.mark.parametrize("name", ["plain", "packed"])
def test_weights_survive_a_release_once_loaded_again(name: linear_choice.LinearName) -> None:
    weight = weight_of(200, 96)
    method = loaded(name, weight, rows=True)
    x = torch.ones((2, 96))
    before, stored = method.apply(x, None), [memory for _, memory in method.stored()]
    assert method.pool.release(WEIGHTS) > 0
    assert not method.apply(x, None).any()
    method.pool.restore(WEIGHTS)
    load(method, weight)
    assert torch.equal(method.apply(x, None), before)
    assert [memory.data_ptr() for _, memory in method.stored()] == [
        memory.data_ptr() for memory in stored
    ]


def test_the_plain_weight_is_gone_after_packing() -> None:
    method = loaded("packed", weight_of(960, 576))
    assert method.pool.bytes(STAGING) == 0
    assert method.pool.bytes(WEIGHTS) == 960 * 576 * 4
    with pytest.raises(ValueError, match="only while its layer is loaded"):
        _ = method.plain
    with pytest.raises(ValueError, match="reads_rows"):
        method.rows(torch.tensor([0]))


def test_rows_are_copied_when_the_layout_is_not_understood(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packed, "find_rows", lambda memory, plain: None)
    weight = weight_of(33, 17)
    method = loaded("packed", weight, rows=True)
    assert torch.equal(method.rows(torch.tensor([32])), weight[32:])
    method.pool.release(WEIGHTS)
    method.pool.restore(WEIGHTS)
    load(method, weight)
    assert torch.equal(method.rows(torch.tensor([32])), weight[32:])
    assert [name for name, _ in method.stored()] == ["weight", "rows"]


@pytest.mark.parametrize(("block", "pair"), [(64, 1), (32, 2), (16, 4)])
def test_layouts_of_other_processors_are_read(block: int, pair: int) -> None:
    rows, columns, depth = 70, 24, 32
    weight = weight_of(rows, columns).bfloat16()
    padded = torch.zeros((-(-rows // block) * block, depth), dtype=torch.bfloat16)
    padded[:rows, :columns] = weight
    blocks = padded.view(-1, block, depth // pair, pair).transpose(1, 2)
    memory = blocks.contiguous().view(-1).view(torch.uint8)
    assert find_rows(memory, weight) == PackedRows(rows, columns, depth, block, pair, weight.dtype)
    scrambled = memory.flip(0)
    assert find_rows(scrambled, weight) is None


@pytest.mark.parametrize(
    ("device", "packs", "elements", "chosen"),
    [
        ("cpu", True, MIN_PACKED, "packed"),
        ("cpu", True, MIN_PACKED - 1, "plain"),
        ("cpu", False, 2**30, "plain"),
        ("cuda", False, 2**30, "plain"),
        ("cuda", True, 2**30, "plain"),
    ],
)
def test_choice(device: str, packs: bool, elements: int, chosen: str) -> None:
    assert choose_linear(device, packs, elements) == chosen


def test_a_machine_that_cannot_pack_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert can_pack(torch.float32)

    def refuse(plain: Tensor) -> Tensor:
        raise RuntimeError("no such instruction")

    monkeypatch.setattr(linear_choice, "pack", refuse)
    assert not can_pack.__wrapped__(torch.float32)
