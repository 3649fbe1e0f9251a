"""A model folder's ``config.json`` as a ModelConfig, checked before anything is loaded.

The numbers in the file come from outside: each has a bound, and what the model classes do not
implement is refused by name.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torpor_protocol.config import DType, ModelConfig, RopeScaling
from torpor_protocol.errors import ModelError
from torpor_protocol.model_files import check_readable

ARCHITECTURES = ("LlamaForCausalLM",)
DTYPES: dict[str, DType] = {
    "float32": "float32",
    "bfloat16": "bfloat16",
    "float16": "float16",
}
_MAX = {
    "vocab_size": 2**20,
    "hidden_size": 2**17,
    "intermediate_size": 2**19,
    "num_hidden_layers": 1024,
    "num_attention_heads": 1024,
    "num_key_value_heads": 1024,
    "head_dim": 1024,
    "max_position_embeddings": 2**27,
}
MAX_CONFIG_BYTES = 2**20
DEFAULT_ROPE_THETA = 10_000.0


def read_model_config(folder: Path, dtype: str = "auto", max_len: int | None = None) -> ModelConfig:
    """Read ``config.json`` and ``generation_config.json``.

    ``dtype`` "auto" is the checkpoint's own. ``max_len`` None takes the model's longest context.
    Raises ModelError with the file and the field."""
    data = _read_json(folder, "config.json")
    architecture = _architecture(folder, data)
    heads = _size(folder, data, "num_attention_heads")
    hidden = _size(folder, data, "hidden_size")
    longest = _size(folder, data, "max_position_embeddings")
    theta, scaling = _rope(folder, data)
    if scaling.kind == "linear":
        longest = int(longest * scaling.factor)
    return ModelConfig(
        path=str(folder.resolve()),
        architecture=architecture,
        dtype=_dtype(folder, data, dtype),
        max_model_len=_max_len(folder, longest, max_len),
        vocab_size=_size(folder, data, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=_size(folder, data, "intermediate_size"),
        num_layers=_size(folder, data, "num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=_size(folder, data, "num_key_value_heads", heads),
        head_dim=_size(folder, data, "head_dim", hidden // heads),
        rms_norm_eps=float(data.get("rms_norm_eps", 1e-6)),
        rope_theta=theta,
        rope_scaling=scaling,
        max_position=longest,
        tie_word_embeddings=bool(data.get("tie_word_embeddings", False)),
        attention_bias=bool(data.get("attention_bias", False)),
        mlp_bias=bool(data.get("mlp_bias", False)),
        eos_token_ids=_eos(folder, data),
        bos_token_id=data.get("bos_token_id"),
    )


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    path = folder / name
    check_readable(folder)
    if not folder.is_dir():
        raise ModelError(
            f"There is no model folder {folder}.",
            "Give a folder with config.json, tokenizer.json and *.safetensors (`make -s model` "
            "makes one).",
        )
    if not path.is_file():
        raise ModelError(
            f"The model folder {folder} has no {name}.",
            "Give a folder as transformers saves it: config.json, tokenizer.json, *.safetensors.",
        )
    check_readable(path)
    try:
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise ValueError("it is larger than 1 MiB")
        data = json.loads(path.read_bytes())
    except (ValueError, OSError, RecursionError) as error:
        raise ModelError(
            f"{path} cannot be read: {error}.", "Copy the model again; the file is damaged."
        ) from error
    if not isinstance(data, dict):
        raise ModelError(f"{path} is not a JSON object.", "Copy the model again.")
    return data


def _architecture(folder: Path, data: dict[str, Any]) -> str:
    names = data.get("architectures") or ["(none)"]
    if data.get("quantization_config"):
        raise ModelError(
            f"The model in {folder} is quantised, which is not supported yet.",
            "Use the float or bfloat16 checkpoint of the same model.",
        )
    if data.get("hidden_act", "silu") != "silu":
        raise ModelError(
            f"The model in {folder} uses the activation {data['hidden_act']!r}.",
            "Use a model with silu.",
        )
    for name in names:
        if name in ARCHITECTURES:
            return str(name)
    raise ModelError(
        f"The model in {folder} has the architecture {names[0]}, which is not implemented.",
        f"Use a model of {', '.join(ARCHITECTURES)}.",
    )


def _size(folder: Path, data: dict[str, Any], name: str, default: int | None = None) -> int:
    value = data.get(name)
    if value is None and default is not None:
        value = default
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX[name]:
        raise ModelError(
            f"{folder / 'config.json'} gives {name} as {str(value)[:40]!r}.",
            f"It has to be an integer from 1 to {_MAX[name]}.",
        )
    return value


def _dtype(folder: Path, data: dict[str, Any], wanted: str) -> DType:
    name = wanted if wanted != "auto" else str(data.get("dtype") or data.get("torch_dtype"))
    if wanted == "auto" and name == "None":
        return "float32"
    if name not in DTYPES:
        raise ModelError(
            f"The dtype {name!r} of the model in {folder} is not supported.",
            f"Use --dtype with one of {', '.join(DTYPES)}.",
        )
    return DTYPES[name]


def _max_len(folder: Path, longest: int, wanted: int | None) -> int:
    if wanted is None:
        return longest
    if not 1 < wanted <= longest:
        raise ModelError(
            f"--max-model-len {wanted} is not within what the model in {folder} knows.",
            f"Use a length from 2 to {longest}.",
        )
    return wanted


def _rope(folder: Path, data: dict[str, Any]) -> tuple[float, RopeScaling]:
    parameters = data.get("rope_parameters") or data.get("rope_scaling") or {}
    theta = parameters.get("rope_theta", data.get("rope_theta", DEFAULT_ROPE_THETA))
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind not in ("default", "linear", "llama3"):
        raise ModelError(
            f"The model in {folder} scales its rotary embedding by {kind!r}.",
            "Use a model with default, linear or llama3 scaling.",
        )
    try:
        original = parameters.get(
            "original_max_position_embeddings", data.get("max_position_embeddings", 0)
        )
        return float(theta), RopeScaling(
            kind=kind,
            factor=float(parameters.get("factor", 1.0)),
            low_freq_factor=float(parameters.get("low_freq_factor", 1.0)),
            high_freq_factor=float(parameters.get("high_freq_factor", 4.0)),
            original_max_position=int(original),
        )
    except (TypeError, ValueError) as error:
        raise ModelError(
            f"The rotary parameters of the model in {folder} are not numbers: {error}.",
            "Copy the model's config.json again.",
        ) from error


def _eos(folder: Path, data: dict[str, Any]) -> tuple[int, ...]:
    """End tokens of ``generation_config.json`` first: chat models list theirs there."""
    generation: dict[str, Any] = {}
    if (folder / "generation_config.json").is_file():
        generation = _read_json(folder, "generation_config.json")
    value = generation.get("eos_token_id", data.get("eos_token_id"))
    values = value if isinstance(value, list) else [value]
    return tuple(token for token in values if isinstance(token, int) and token >= 0)
