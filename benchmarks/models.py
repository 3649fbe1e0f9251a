"""The models that are measured: a real one, and one whose weight is nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from benchmarks.places import allow_helpers, cache_folder

TINY_NAME = "tiny-llama-2x64"


def smollm2() -> Path:
    """The folder that `make model` makes. Raises FileNotFoundError when it is not there."""
    allow_helpers()
    from make_model import NAME, is_complete, models_folder

    folder: Path = models_folder() / NAME
    if not is_complete(folder):
        raise FileNotFoundError(f"There is no model in {folder}; run `make model`.")
    return folder


def tiny() -> Path:
    """A random Llama in which a step costs what the engine costs; made once."""
    folder = cache_folder() / "models" / TINY_NAME
    if not (folder / "config.json").is_file():
        allow_helpers()
        from tiny_models import make_tiny_llama

        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        make_tiny_llama(part, heads=2, kv_heads=2, hidden=64, layers=2, vocab=1024)
        part.rename(folder)
    return folder


def without_end(folder: Path) -> Path:
    """The same model with no end-of-sequence token, for a server that cannot ignore it."""
    endless = folder.with_name(f"{folder.name}-endless")
    endless.mkdir(exist_ok=True)
    for source in folder.iterdir():
        target = endless / source.name
        if source.name in ("config.json", "generation_config.json"):
            data = json.loads(source.read_text())
            data.pop("eos_token_id", None)
            target.write_text(json.dumps(data, indent=2))
        elif not target.exists():
            target.symlink_to(source)
    return endless
