"""The CPU backend against the blackboard version: decodes, prompts, chunks, and mixes of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_cases import Sequences, compare, random_qkv, shape_of
from torpor_worker.attention.cpu_decode import PADDING_RATIO, length_buckets
from torpor_worker.attention.cpu_paged import CpuPagedAttention
from torpor_worker.attention.cpu_prefill import CausalMasks

SHAPES = {
    "grouped": {},
    "replicated": {"heads": 3, "kv_heads": 1},
    "ungrouped": {"heads": 2, "kv_heads": 2},
    "odd": {"heads": 9, "kv_heads": 3, "head_dim": 24, "block_size": 16},
}
STEPS = {
    "one decode after its prompt": [[(0, 5)], [(0, 1)], [(0, 1)]],
    "decodes of similar length": [[(0, 6), (1, 7), (2, 8)], [(0, 1), (1, 1), (2, 1)]],
    "decodes of very different length": [[(0, 1), (1, 90), (2, 9)], [(2, 1), (1, 1), (0, 1)]],
    "prompts of one length": [[(0, 6), (1, 6), (2, 6)]],
    "prompts of all lengths": [[(0, 2), (1, 3), (2, 7), (3, 7), (4, 200), (5, 31), (6, 4)]],
    "a chunked prompt": [[(0, 7)], [(0, 9)], [(0, 300)], [(0, 2)], [(0, 1)]],
    "all at once": [[(0, 20), (1, 2)], [(0, 1), (1, 30), (2, 8), (3, 8)], [(1, 1), (2, 3), (4, 1)]],
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("steps", STEPS)
def test_equals_the_oracle(shape: str, steps: str) -> None:
    sizes = shape_of(**SHAPES[shape])
    ordered = [sorted(step, key=lambda item: item[1] > 1) for step in STEPS[steps]]
    compare(CpuPagedAttention(sizes), sizes, ordered, num_blocks=200)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_close(dtype: torch.dtype) -> None:
    sizes = shape_of(dtype=dtype)
    steps = [[(0, 20), (1, 2)], [(0, 1), (1, 30), (2, 8)], [(0, 1), (2, 1)]]
    compare(CpuPagedAttention(sizes), sizes, steps, num_blocks=60, tolerance=0.03)


@settings(deadline=None, max_examples=25)
@given(
    steps=st.lists(
        st.dictionaries(st.integers(0, 5), st.integers(1, 12), min_size=1, max_size=6),
        min_size=1,
        max_size=5,
    )
)
def test_random_traces(steps: list[dict[int, int]]) -> None:
    sizes = shape_of(layers=1)
    ordered = [sorted(step.items(), key=lambda item: item[1] > 1) for step in steps]
    compare(CpuPagedAttention(sizes), sizes, ordered, num_blocks=120)


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    sizes = shape_of(layers=1)
    counts = [(0, 40), (1, 3), (2, 50)]
    q, k, v = random_qkv(sizes, 93, seed=1)
    q2, k2, v2 = random_qkv(sizes, 3, seed=2)
    outputs = []
    for chosen in ([0, 1, 2], [0]):
        backend = CpuPagedAttention(sizes)
        backend.allocate(60, lambda size, dtype: torch.zeros(size, dtype=dtype))
        sequences = Sequences(sizes, 3, 60)
        rows = [counts[row] for row in chosen]
        tokens = sum(count for _, count in rows)
        backend.plan(sequences.step(rows))(0, q[:tokens], k[:tokens], v[:tokens])
        batch, count = sequences.step([(row, 1) for row in chosen]), len(chosen)
        outputs.append(backend.plan(batch)(0, q2[:count], k2[:count], v2[:count])[0])
    np.testing.assert_allclose(outputs[0], outputs[1], rtol=0, atol=1e-6)


def test_what_other_requests_left_behind_does_not_matter() -> None:
    """Values behind a row's end are not even multiplied by zero: infinity times zero is not."""
    sizes = shape_of(layers=1)
    backend = CpuPagedAttention(sizes)
    backend.allocate(20, lambda size, dtype: torch.zeros(size, dtype=dtype))
    sequences = Sequences(sizes, 2, 20)
    backend.plan(sequences.step([(0, 5), (1, 14)]))(0, *random_qkv(sizes, 19, seed=3))
    backend.values[0][sequences.blocks[0][1], 2:] = float("inf")
    out = backend.plan(sequences.step([(0, 1), (1, 1)]))(0, *random_qkv(sizes, 2, seed=4))
    assert out.isfinite().all()
    assert not backend.values[0][0].any()


@given(st.lists(st.integers(1, 500), max_size=40))
def test_buckets_bound_the_padding(lengths: list[int]) -> None:
    blocks = np.array(lengths, np.int64)
    buckets = length_buckets(blocks)
    assert sorted(row for bucket in buckets for row in bucket.tolist()) == list(range(len(blocks)))
    for bucket in buckets:
        assert blocks[bucket].max() <= PADDING_RATIO * blocks[bucket].min()
        assert (np.diff(bucket) > 0).all()


def test_masks_are_views_of_one_tensor() -> None:
    masks = CausalMasks(max_model_len=2**18, dtype=torch.float32)
    assert masks.block < 256
    wide = masks.mask(masks.block, 5000)
    for queries, keys in ((1, 1), (1, 9), (5, 5), (7, 100), (masks.block, 300)):
        expected = torch.ones(queries, keys).tril(keys - queries).bool()
        mask = masks.mask(queries, keys)
        assert torch.equal(mask == 0, expected)
        assert mask.untyped_storage().data_ptr() == wide.untyped_storage().data_ptr()


def test_clear_zeroes_the_cache() -> None:
    sizes = shape_of(layers=2)
    backend = CpuPagedAttention(sizes)
    backend.allocate(3, lambda size, dtype: torch.zeros(size, dtype=dtype))
    for tensor in backend.keys + backend.values:
        tensor.fill_(1.0)
    backend.clear()
    assert not any(tensor.any() for tensor in backend.keys + backend.values)


def test_shared_cache_has_one_layers_memory() -> None:
    made = []

    def make(size: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        made.append(torch.empty(size, dtype=dtype))
        return made[-1]

    backend = CpuPagedAttention(shape_of(layers=5))
    backend.allocate(3, make, shared=True)
    assert len(made) == 2
    assert len(backend.keys) == len(backend.values) == 5
