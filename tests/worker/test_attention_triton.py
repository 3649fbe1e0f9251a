"""The Triton kernel against the blackboard version, in the interpreter, on a CPU.

In a process of its own, because the interpreter is chosen when Triton is imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECK = """
import sys
import torch
from attention_cases import Sequences, compare, random_qkv, shape_of
from torpor_worker.attention.triton_paged import TritonPagedAttention

sizes = {sizes}
shape = shape_of(**sizes)
steps = {steps}
ordered = [sorted(step, key=lambda item: item[1] > 1) for step in steps]
compare(TritonPagedAttention(shape), shape, ordered, num_blocks=60)

backend = TritonPagedAttention(shape)
backend.allocate(60, lambda size, dtype: torch.zeros(size, dtype=dtype))
sequences = Sequences(shape, 1, 60)
backend.plan(sequences.step([(0, 2)]))(0, *random_qkv(shape, 2, seed=1))
backend.values[0][sequences.blocks[0][-1], 3:] = float("inf")
out = backend.plan(sequences.step([(0, 1)]))(0, *random_qkv(shape, 1, seed=2))
assert out.isfinite().all()
print("equal")
"""

CASES = {
    "grouped": ({"layers": 1}, [[(0, 5), (1, 18)], [(0, 1), (1, 1), (2, 9)], [(2, 3), (0, 1)]]),
    "many queries": ({"layers": 1, "heads": 6, "kv_heads": 1}, [[(0, 30)], [(0, 23)], [(0, 1)]]),
    "odd sizes": (
        {"layers": 1, "heads": 3, "kv_heads": 3, "head_dim": 24, "block_size": 6},
        [[(0, 7), (1, 13)], [(0, 1), (1, 2)]],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_kernel_in_the_interpreter(case: str) -> None:
    sizes, steps = CASES[case]
    support = Path(__file__).parents[1] / "support"
    done = subprocess.run(
        [sys.executable, "-c", CHECK.format(sizes=sizes, steps=steps)],
        env={
            **os.environ,
            "TRITON_INTERPRET": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(support),
        },
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.stdout.strip() == "equal", done.stderr
