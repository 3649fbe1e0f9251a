"""The helper that the token tests lean on: exact sizes, same bytes each time, a true reference."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer

from tiny_models import make_tiny_llama, reference_best, reference_greedy, reference_model
from tiny_tokenizer import EOS_ID, SPECIAL_TOKENS, train

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def test_same_arguments_give_same_bytes(tiny_llama: Path, tmp_path: Path) -> None:
    again = make_tiny_llama(tmp_path / "again")
    names = sorted(path.name for path in tiny_llama.iterdir())
    assert names == sorted(path.name for path in again.iterdir())
    for name in names:
        assert (tiny_llama / name).read_bytes() == (again / name).read_bytes()
    other = make_tiny_llama(tmp_path / "other", seed=1)
    name = "model.safetensors"
    assert (tiny_llama / name).read_bytes() != (other / name).read_bytes()


def test_global_random_state_is_left_alone(tmp_path: Path) -> None:
    before = torch.random.get_rng_state()
    make_tiny_llama(tmp_path / "model")
    assert torch.equal(torch.random.get_rng_state(), before)


def test_files_are_sharded_with_an_index(tmp_path: Path) -> None:
    one = load_file(make_tiny_llama(tmp_path / "one", tie=True) / "model.safetensors")
    folder = make_tiny_llama(tmp_path / "three", tie=True, files=3)
    weight_map = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    assert len(set(weight_map.values())) == 3
    assert "lm_head.weight" not in weight_map
    many = {name: load_file(folder / file)[name] for name, file in weight_map.items()}
    assert many.keys() == one.keys()
    assert all(torch.equal(many[name], one[name]) for name in one)


@pytest.mark.parametrize("vocab", [512, 1024])
def test_tokenizer_has_the_exact_size_and_returns_any_text(tmp_path: Path, vocab: int) -> None:
    folder = make_tiny_llama(tmp_path, vocab=vocab)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer) == vocab
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == [0, 1, 2, 3]
    assert tokenizer.eos_token_id == EOS_ID
    text = "What is a torpid bird? Ein Kolibri – 蜂鳥 🐦."
    assert tokenizer.decode(tokenizer.encode(text)) == text
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )
    assert chat == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_too_small_a_vocabulary_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 260"):
        train(259)


def test_more_files_than_tensors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be written into 99 files"):
        make_tiny_llama(tmp_path, files=99)


@pytest.mark.parametrize("rope_scaling", [None, LLAMA3])
@pytest.mark.parametrize("tie", [False, True])
def test_reference_equals_a_full_forward_of_every_prefix(
    tmp_path: Path, tie: bool, rope_scaling: dict[str, object] | None
) -> None:
    folder = make_tiny_llama(tmp_path, tie=tie, rope_scaling=rope_scaling)
    prompt = list(range(10, 90))
    tokens, gaps = reference_greedy(folder, prompt, 8)
    with torch.inference_mode():
        logits = reference_model(folder)(torch.tensor([prompt + tokens])).logits[0]
    best = logits[len(prompt) - 1 : -1].topk(2)
    assert best.indices[:, 0].tolist() == tokens
    assert best.indices[0].tolist() == reference_best(folder, prompt, 2)
    assert (best.values[:, 0] - best.values[:, 1]).tolist() == pytest.approx(gaps, abs=1e-4)


def test_default_model_says_many_things_with_wide_gaps(tiny_llama: Path) -> None:
    tokens, gaps = reference_greedy(tiny_llama, [5, 6, 7], 48)
    assert len(set(tokens)) > 30
    assert min(gaps) > 1e-3


def test_a_folder_written_anew_is_loaded_anew(tmp_path: Path) -> None:
    first = reference_greedy(make_tiny_llama(tmp_path), [5, 6, 7], 8)
    second = reference_greedy(make_tiny_llama(tmp_path, seed=1), [5, 6, 7], 8)
    assert first != second
