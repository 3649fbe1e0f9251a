"""A byte-level BPE tokenizer of an exact size, trained in the test run itself.

Real tokenizers are megabytes and come from a hub; a tiny model needs one with the same behaviour
(bytes, merges, special tokens, a chat template) and a vocabulary that fits its embedding.
"""

from __future__ import annotations

import functools
import json
import random
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

END_OF_TEXT = "<|endoftext|>"  # id 0, bos
START_OF_TURN = "<|im_start|>"  # id 1
END_OF_TURN = "<|im_end|>"  # id 2, eos
PAD = "<|pad|>"  # id 3
SPECIAL_TOKENS = (END_OF_TEXT, START_OF_TURN, END_OF_TURN, PAD)
BOS_ID, EOS_ID, PAD_ID = 0, 2, 3
BYTES = 256

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

SENTENCES = """
The quick brown fox jumps over the lazy dog and sleeps until the morning comes.
What is the capital of France? The capital of France is Paris, a city on the river.
A torpid hummingbird gives back its warmth at night and wakes when the sun rises.
Tell me a short story about a small bird that wanted to see the sea before winter.
The user asks a question, the assistant answers it, and the system stays polite.
"""


def training_text(vocab: int) -> list[str]:
    """Text with more than `vocab` distinct pairs to merge, the same in every run."""
    rng = random.Random(0)
    onsets = ["b", "ch", "d", "f", "gr", "h", "j", "k", "l", "m", "n", "p", "r", "st", "t", "v"]
    vowels = ["a", "e", "i", "o", "u", "ai", "ea", "ou"]
    words = [
        "".join(rng.choice(onsets) + rng.choice(vowels) for _ in range(rng.randint(1, 4)))
        for _ in range(4 * vocab)
    ]
    lines = [" ".join(words[start : start + 12]) for start in range(0, len(words), 12)]
    return SENTENCES.strip().splitlines() * 8 + lines


@functools.cache
def train(vocab: int) -> str:
    """Train a tokenizer with exactly `vocab` entries; return its JSON text."""
    smallest = BYTES + len(SPECIAL_TOKENS)
    if vocab < smallest:
        raise ValueError(f"a byte-level vocabulary needs at least {smallest} entries, not {vocab}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(training_text(vocab), trainer)
    if tokenizer.get_vocab_size() != vocab:
        raise ValueError(f"training gave {tokenizer.get_vocab_size()} entries, not {vocab}")
    return tokenizer.to_str(pretty=True)


def save_tokenizer(folder: Path, vocab: int, max_position: int) -> None:
    """Write tokenizer.json and tokenizer_config.json (with the chat template) into `folder`."""
    (folder / "tokenizer.json").write_text(train(vocab), encoding="utf-8")
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END_OF_TEXT,
        "eos_token": END_OF_TURN,
        "pad_token": PAD,
        "model_max_length": max_position,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
