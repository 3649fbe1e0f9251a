"""A model folder that cannot be used is refused with the cause and a fix."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tiny_models import make_tiny_llama
from torpor_protocol.errors import ModelError
from torpor_worker.loader import WeightsCorrupt, load_weights
from torpor_worker.memory.cpu import CpuMemoryPool
from torpor_worker.models import build_model
from torpor_worker.parallel import SingleRank
from worker_configs import engine_config

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
SECOND = "model-00002-of-00003.safetensors"
EMBEDDING = "model.embed_tokens.weight"
QUERY = "model.layers.0.self_attn.q_proj.weight"


def load(folder: Path) -> None:
    config, groups = engine_config(folder), SingleRank()
    model = build_model(config, groups, CpuMemoryPool(), linear="plain")
    load_weights(model, config, groups)


@pytest.fixture
def single(tiny_llama: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_llama, tmp_path / "single"))


@pytest.fixture
def several(tmp_path: Path) -> Path:
    return make_tiny_llama(tmp_path / "several", files=3)


def change(folder: Path, edit: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    tensors = load_file(folder / SINGLE)
    edit(tensors)
    save_file(tensors, folder / SINGLE)


def cut(file: Path, keep: int) -> None:
    file.write_bytes(file.read_bytes()[:keep])


def test_files_that_are_whole_load(single: Path, several: Path) -> None:
    load(single)
    load(several)


def test_rotary_buffers_of_old_checkpoints_are_ignored(single: Path) -> None:
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    change(single, lambda tensors: tensors.update({name: torch.ones(8)}))
    load(single)


def test_missing_tensor(single: Path) -> None:
    change(single, lambda tensors: tensors.pop(QUERY))
    with pytest.raises(ModelError, match=rf"lacks 1 tensors, '{QUERY}'.*\. Use the config\.json"):
        load(single)


def test_unknown_tensor(single: Path) -> None:
    change(single, lambda tensors: tensors.update({"model.vision.weight": torch.ones(2)}))
    with pytest.raises(ModelError, match=r"no place for, 'model\.vision\.weight'.*\. Use "):
        load(single)


def test_wrong_shape(single: Path) -> None:
    change(single, lambda tensors: tensors.update({QUERY: torch.ones((32, 64))}))
    with pytest.raises(ModelError, match=r"has shape \[32, 64\], but .* asks for \[64, 64\]"):
        load(single)


def test_quantized_tensor(single: Path) -> None:
    whole = torch.ones((64, 64), dtype=torch.int8)
    change(single, lambda tensors: tensors.update({QUERY: whole}))
    with pytest.raises(ModelError, match="data type I8, which is not supported"):
        load(single)


@pytest.mark.parametrize("keep", [0, 5, 100, -1, -10_000])
def test_cut_file(single: Path, keep: int) -> None:
    cut(single / SINGLE, keep)
    with pytest.raises(WeightsCorrupt, match=r"damaged or cut short.*\. Download the model again"):
        load(single)


def test_file_that_is_no_safetensors(single: Path) -> None:
    (single / SINGLE).write_text("<html>404 not found</html>" * 50)
    with pytest.raises(WeightsCorrupt, match="damaged or cut short"):
        load(single)


def test_no_weights(single: Path) -> None:
    (single / SINGLE).unlink()
    with pytest.raises(ModelError, match=f"has neither {SINGLE} nor"):
        load(single)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pytorch_model.bin", "pickle files"),
        ("consolidated.00.pth", "pickle files"),
        ("model.gguf", "GGUF files only"),
    ],
)
def test_other_formats(single: Path, name: str, words: str) -> None:
    (single / SINGLE).rename(single / name)
    with pytest.raises(ModelError, match=f"{words}.*safetensors"):
        load(single)


def test_missing_file_of_several(several: Path) -> None:
    (several / SECOND).unlink()
    with pytest.raises(ModelError, match=rf"{SECOND} is missing\. Download"):
        load(several)


def test_cut_file_of_several(several: Path) -> None:
    cut(several / SECOND, -8)
    with pytest.raises(WeightsCorrupt, match=f"{SECOND} is damaged"):
        load(several)


def edit_index(folder: Path, edit: Callable[[dict[str, str]], Any]) -> None:
    index = json.loads((folder / INDEX).read_text())
    edit(index["weight_map"])
    (folder / INDEX).write_text(json.dumps(index))


def test_index_lists_what_no_file_has(several: Path) -> None:
    edit_index(several, lambda table: table.update({"model.extra": SECOND}))
    with pytest.raises(ModelError, match=f"lists 'model.extra', which {SECOND} does not have"):
        load(several)


def test_index_stays_in_its_folder(several: Path) -> None:
    edit_index(several, lambda table: table.update({EMBEDDING: "../several/other.safetensors"}))
    with pytest.raises(ModelError, match="outside of its folder"):
        load(several)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {"a": 1}}', "[" * 100_000]
)
def test_bad_index(several: Path, text: str) -> None:
    (several / INDEX).write_text(text)
    with pytest.raises(ModelError, match=r"index\.json (cannot be read|has no table)"):
        load(several)
