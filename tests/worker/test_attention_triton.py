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


def test_kernels_compile_for_a_device() -> None:
    """For compute capability 9.0, which needs no device."""
    done = subprocess.run(
        [sys.executable, "-c", COMPILE], capture_output=True, text=True, timeout=240
    )
    assert done.stdout.strip() == "compiled", done.stderr


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from torpor_worker.attention.triton_kernels import _attend_kernel
from torpor_worker.runner.kernels import _write_packed_kernel


def compile(kernel, types, constants):
    names = kernel.arg_names
    signature = {name: types.get(name, "constexpr") for name in names}
    places = {(names.index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=kernel, signature=signature, constexprs=places)
    assert triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"]


sizes = dict(GROUP=3, KV_HEADS=3, DIM=64, DIM_TILE=64, SIZE=16, SIZE_TILE=16)
types = dict.fromkeys(("q", "keys", "values", "out"), "*bf16")
types |= dict.fromkeys(("seq_lens", "query_start", "piece_rows", "piece_firsts"), "*i64")
types |= {"tables": "*i32", "scale": "fp32", "q_stride": "i32", "table_stride": "i32"}
for queries, tile in ((1, 16), (21, 64)):
    compile(_attend_kernel, types, {**sizes, "QUERIES": queries, "TILE": tile})
types = {"target": "*i32", "starts": "*i64", "offsets": "*i64", "content": "*i32"}
compile(_write_packed_kernel, types, {"BLOCK": 1024})
print("compiled")
"""
