"""The files of a checkpoint: which tensor is where, without reading any weight."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open

from torpor_protocol.errors import ModelError
from torpor_protocol.model_files import check_readable
from torpor_worker.loader.errors import WeightsCorrupt

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
DOWNLOAD = "Download the model again."


@dataclass(frozen=True)
class TensorEntry:
    """A tensor's file, its shape and its data type as safetensors names it (``BF16``)."""

    file: Path
    shape: tuple[int, ...]
    dtype: str


def read_checkpoint(folder: Path) -> dict[str, TensorEntry]:
    """Every tensor of the model in a folder, from the index or the single file.

    Raises ModelError when there is no usable safetensors checkpoint, WeightsCorrupt when a file is
    damaged.
    """
    index = folder / INDEX
    check_readable(folder)
    check_readable(index)
    if not index.is_file():
        single = folder / SINGLE
        if not single.is_file():
            raise _no_safetensors(folder)
        return _read_header(single)
    weight_map = _read_index(index)
    entries: dict[str, TensorEntry] = {}
    for name in sorted(set(weight_map.values())):
        # The index may name only files beside it, whoever wrote it.
        if Path(name).name != name:
            raise ModelError(f"{index} names a file outside of its folder: {name!r}.", DOWNLOAD)
        entries.update(_read_header(folder / name))
    missing = sorted(name for name in weight_map if name not in entries)
    if missing:
        raise ModelError(
            f"{index} lists {missing[0]!r}, which {weight_map[missing[0]]} does not have.",
            DOWNLOAD,
        )
    return entries


def _read_index(index: Path) -> dict[str, str]:
    try:
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelError(f"{index} cannot be read: {error}.", DOWNLOAD) from error
    if not isinstance(weight_map, dict) or not all(
        isinstance(file, str) for file in weight_map.values()
    ):
        raise ModelError(f"{index} has no table of tensor names and files.", DOWNLOAD)
    return weight_map


def _read_header(file: Path) -> dict[str, TensorEntry]:
    if not file.is_file():
        raise ModelError(f"{file} is missing.", DOWNLOAD)
    check_readable(file)
    try:
        with safe_open(file, framework="pt") as opened:
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
            return {
                name: TensorEntry(file, tuple(part.get_shape()), part.get_dtype())
                for name, part in slices.items()
            }
    except (SafetensorError, OSError) as error:
        raise WeightsCorrupt(
            f"{file} is damaged or cut short: {str(error).rstrip('.')}.", DOWNLOAD
        ) from error


def _no_safetensors(folder: Path) -> ModelError:
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt*")):
        return ModelError(
            f"{folder} has weights in pickle files (.bin, .pt), which can run code when read.",
            "Convert them to safetensors, or use a revision of the model that has safetensors.",
        )
    if any(folder.glob("*.gguf")):
        return ModelError(
            f"{folder} has weights in GGUF files only.", "Use the model's safetensors version."
        )
    return ModelError(
        f"{folder} has neither {SINGLE} nor {INDEX}.", "Give the folder of a safetensors model."
    )
