"""Random Llama checkpoints for fast tests, and the tokens that transformers makes of them.

transformers is the reference for every promise about tokens, so the checkpoints are its own: the
layout, the names and the config come from its classes. The weights are drawn wide, because the two
best logits of a random model with the usual range are nearly equal, and a test on greedy tokens
would then test rounding.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from tiny_tokenizer import BOS_ID, EOS_ID, PAD_ID, save_tokenizer

INITIALIZER_RANGE = 0.2
ROPE_THETA = 10_000.0
NORM_SPREAD = 0.5  # norm weights are uniform in 1 +- this, so that one left out is noticed


def make_tiny_llama(
    folder: Path,
    *,
    heads: int = 4,
    kv_heads: int = 2,
    hidden: int = 64,
    layers: int = 2,
    intermediate: int = 128,
    vocab: int = 1024,
    tie: bool = False,
    rope_scaling: Mapping[str, Any] | None = None,
    files: int = 1,
    seed: int = 0,
    dtype: str = "float32",
    max_position: int = 512,
) -> Path:
    """Write a random Llama with its tokenizer into `folder`, the same for the same arguments.

    `rope_scaling` is the entry of that name in a config (`{"rope_type": "llama3", "factor": ...}`);
    `files` is the number of safetensors files (with an index when there are several). Returns
    `folder`, which is made when missing.
    """
    config = LlamaConfig(
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        hidden_size=hidden,
        num_hidden_layers=layers,
        intermediate_size=intermediate,
        vocab_size=vocab,
        tie_word_embeddings=tie,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA, **(rope_scaling or {})},
        max_position_embeddings=max_position,
        initializer_range=INITIALIZER_RANGE,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
        pad_token_id=PAD_ID,
        architectures=["LlamaForCausalLM"],
        dtype=dtype,
    )
    folder.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(folder)
    special = {"bos_token_id": BOS_ID, "eos_token_id": EOS_ID, "pad_token_id": PAD_ID}
    (folder / "generation_config.json").write_text(json.dumps(special, indent=2))
    save_tokenizer(folder, vocab, max_position)
    save_weights(folder, random_weights(config, seed, getattr(torch, dtype)), files)
    return folder


def random_weights(config: LlamaConfig, seed: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """The tensors of a checkpoint by name, drawn from `seed` alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        weights = LlamaForCausalLM(config).float().state_dict()
        for name, tensor in weights.items():
            if name.endswith("norm.weight"):
                tensor.uniform_(1 - NORM_SPREAD, 1 + NORM_SPREAD)
    if config.tie_word_embeddings:
        del weights["lm_head.weight"]
    return {name: tensor.to(dtype).contiguous() for name, tensor in weights.items()}


def save_weights(folder: Path, weights: Mapping[str, torch.Tensor], files: int) -> None:
    """Write the tensors into `files` safetensors files, neighbours together, as the hub does."""
    if not 1 <= files <= len(weights):
        raise ValueError(f"{len(weights)} tensors cannot be written into {files} files")
    metadata = {"format": "pt"}
    if files == 1:
        save_file(dict(weights), folder / "model.safetensors", metadata)
        return
    names = list(weights)
    weight_map: dict[str, str] = {}
    for part in range(files):
        chosen = names[len(names) * part // files : len(names) * (part + 1) // files]
        file = f"model-{part + 1:05d}-of-{files:05d}.safetensors"
        save_file({name: weights[name] for name in chosen}, folder / file, metadata)
        weight_map.update(dict.fromkeys(chosen, file))
    total = sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))


@functools.lru_cache(maxsize=4)
def _load(folder: Path, changed_ns: int, dtype: str) -> LlamaForCausalLM:
    """Load a folder once; `changed_ns` only makes a folder written anew another key."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    return model.eval()


def reference_model(folder: Path, dtype: str = "float32") -> LlamaForCausalLM:
    """transformers' model of a folder, loaded once per test run."""
    folder = folder.resolve()
    return _load(folder, (folder / "config.json").stat().st_mtime_ns, dtype)


@torch.inference_mode()
def reference_best(folder: Path, token_ids: Sequence[int], count: int) -> list[int]:
    """transformers' most likely tokens after these, the best first."""
    output = reference_model(folder)(input_ids=torch.tensor([list(token_ids)]), logits_to_keep=1)
    best: list[int] = output.logits[0, -1].float().topk(count).indices.tolist()
    return best


@torch.inference_mode()
def reference_greedy(
    folder: Path,
    prompt_token_ids: Sequence[int],
    max_new_tokens: int,
    dtype: str = "float32",
) -> tuple[list[int], list[float]]:
    """Greedy continuation by transformers, and the gap of the two best logits at each step.

    Exactly `max_new_tokens` tokens are made: an end-of-sequence token does not stop it, as
    `ignore_eos` does not in the server. A gap near zero marks a step where rounding may decide.
    """
    model = reference_model(folder, dtype)
    tokens: list[int] = []
    gaps: list[float] = []
    inputs = torch.tensor([list(prompt_token_ids)])
    cache = None
    for _ in range(max_new_tokens):
        output = model(input_ids=inputs, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache = output.past_key_values
        best = output.logits[0, -1].float().topk(2)
        tokens.append(int(best.indices[0]))
        gaps.append(float(best.values[0] - best.values[1]))
        inputs = best.indices[:1].unsqueeze(0)
    return tokens, gaps
