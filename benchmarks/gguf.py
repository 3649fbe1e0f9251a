"""SmolLM2 as GGUF in full precision, for the one peer that reads nothing else.

The model's weights exist in 4 bits; every engine computes with the values that these stand for. The
peer's own tool unpacks them to the types that it is measured in.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from benchmarks.places import allow_helpers, cache_folder

KINDS = {"float32": "F32", "bfloat16": "BF16"}


def file_of(dtype: str) -> Path:
    return cache_folder() / "gguf" / f"smollm2-135m-instruct.{KINDS[dtype]}.gguf"


def make_all(binaries: Path) -> None:
    """Write every kind that is missing. Raises CalledProcessError or OSError."""
    allow_helpers()
    from make_model import fetch_gguf

    missing = [dtype for dtype in KINDS if not file_of(dtype).is_file()]
    if not missing:
        return
    folder = file_of("float32").parent
    folder.mkdir(parents=True, exist_ok=True)
    source = fetch_gguf(folder)
    for dtype in missing:
        part = file_of(dtype).with_suffix(".part")
        command = [str(binaries / "llama-quantize"), "--allow-requantize", str(source)]
        environment = {**os.environ, "LD_LIBRARY_PATH": str(binaries)}
        subprocess.run([*command, str(part), KINDS[dtype]], env=environment, check=True)
        part.rename(file_of(dtype))
