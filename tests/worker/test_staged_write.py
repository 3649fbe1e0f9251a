"""Staged writes against a naive model, and the Triton kernel against the CPU's."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torpor_worker.runner.errors import OverlappingWrites
from torpor_worker.runner.staged_write import StagedWriteTensor

ROWS, WIDTH = 6, 17
DTYPES = [torch.int32, torch.int64, torch.float32]

writes = st.lists(
    st.tuples(
        st.integers(0, ROWS - 1),
        st.integers(0, WIDTH - 1),
        st.lists(st.integers(-100, 100), max_size=WIDTH),
    ),
    max_size=8,
)


@given(rounds=st.lists(writes, min_size=1, max_size=4), dtype=st.sampled_from(DTYPES))
def test_equals_a_naive_model(rounds: list[list[Any]], dtype: torch.dtype) -> None:
    staged = StagedWriteTensor((ROWS, WIDTH), dtype, "cpu")
    model = np.zeros((ROWS, WIDTH))
    for batch in rounds:
        touched = np.zeros((ROWS, WIDTH), int)
        after = model.copy()
        for row, start, values in batch:
            values = values[: WIDTH - start]
            staged.stage_write(row=row, start=start, value=values)
            after[row, start : start + len(values)] = values
            touched[row, start : start + len(values)] += 1
        if (touched > 1).any():
            with pytest.raises(OverlappingWrites):
                staged.apply_write()
        else:
            staged.apply_write()
            model = after
        assert np.array_equal(staged.tensor.numpy(), model.astype(staged.tensor.numpy().dtype))


def test_many_writes_are_one_call() -> None:
    staged = StagedWriteTensor((4, 8), torch.int32, "cpu")
    staged.stage_writes([2, 0], [3, 1], [3, 2], [1, 2, 3, 8, 9])
    staged.apply_write()
    expected = np.zeros((4, 8))
    expected[2, 3:6] = [1, 2, 3]
    expected[0, 1:3] = [8, 9]
    assert np.array_equal(staged.tensor.numpy(), expected)


def test_one_dimension() -> None:
    staged = StagedWriteTensor(5, torch.int64, "cpu")
    staged.stage_write(row=1, start=0, value=[7])
    staged.stage_write(row=3, start=0, value=[8, 9])
    staged.apply_write()
    assert staged.tensor.tolist() == [0, 7, 0, 8, 9]


def test_the_callers_array_is_not_kept() -> None:
    staged = StagedWriteTensor((2, 4), torch.int32, "cpu")
    values = np.array([1, 2], np.int32)
    staged.stage_write(row=0, start=0, value=values)
    values[:] = 9
    staged.apply_write()
    assert staged.tensor[0].tolist() == [1, 2, 0, 0]


def test_applying_twice_changes_nothing() -> None:
    staged = StagedWriteTensor((2, 4), torch.int32, "cpu")
    staged.stage_write(row=1, start=0, value=[5])
    staged.apply_write()
    staged.tensor.zero_()
    staged.apply_write()
    assert not staged.tensor.any()


@pytest.mark.parametrize(("row", "start", "length"), [(-1, 0, 1), (2, 0, 1), (0, -1, 1), (1, 3, 2)])
def test_a_write_outside_is_refused(row: int, start: int, length: int) -> None:
    staged = StagedWriteTensor((2, 4), torch.int32, "cpu")
    with pytest.raises(ValueError, match="does not fit"):
        staged.stage_write(row=row, start=start, value=[1] * length)


KERNEL_CHECK = """
import numpy as np, torch
from torpor_worker.runner.kernels import write_packed
from torpor_worker.runner.staged_write import StagedWriteTensor, write_flat
rng = np.random.default_rng(0)
for dtype in (torch.int32, torch.int64, torch.float32):
    ours, theirs = (StagedWriteTensor((5, 3000), dtype, "cpu") for _ in range(2))
    for _ in range(3):
        for row, start, length in ((4, 0, 1), (0, 3, 2997), (2, 1500, 1024), (2, 10, 1025)):
            value = rng.integers(1, 1000, length)
            for staged in (ours, theirs):
                staged.stage_write(row=row, start=start, value=value)
        write_packed(ours.tensor, ours._pack())
        write_flat(theirs.tensor, theirs._pack())
        assert torch.equal(ours.tensor, theirs.tensor), dtype
    assert (ours.tensor != 0).sum() == 1 + 2997 + 1024 + 1025
print("equal")
"""


def test_triton_kernel_in_the_interpreter() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", KERNEL_CHECK],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.strip() == "equal", done.stderr
