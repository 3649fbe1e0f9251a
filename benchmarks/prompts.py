"""Prompts of an exact number of tokens, no two alike, as text that every server takes."""

from __future__ import annotations

import random
import re
from functools import cache
from pathlib import Path

from tokenizers import Tokenizer

_SPACE = "Ġ"  # how byte-level vocabularies write a leading blank
_WORD = re.compile(_SPACE + "[a-z]{2,}")
MOST_WORDS = 2000


@cache
def _words(tokenizer_file: Path) -> tuple[Tokenizer, tuple[str, ...]]:
    """Words that are one token each wherever they stand after a blank."""
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    named = sorted(token for token in tokenizer.get_vocab() if _WORD.fullmatch(token))
    chosen = random.Random(0).sample(named, min(MOST_WORDS, len(named)))
    words = [token.replace(_SPACE, " ") for token in chosen]
    single = [word for word in words if _length(tokenizer, word) == 1]
    return tokenizer, tuple(single)


def _length(tokenizer: Tokenizer, text: str) -> int:
    return len(tokenizer.encode(text, add_special_tokens=False).ids)


def make_prompts(model: Path, count: int, length: int, seed: int) -> list[str]:
    """``count`` prompts of ``length`` tokens, special tokens included; others for another seed."""
    tokenizer, words = _words(model / "tokenizer.json")
    special = len(tokenizer.encode("").ids)
    prompts = []
    for number in range(count):
        rng = random.Random(seed * 1_000_003 + number)
        text = "".join(rng.choices(words, k=length - special))
        if len(tokenizer.encode(text).ids) != length:
            raise ValueError(f"The words of {model} do not stay single tokens in a text.")
        prompts.append(text)
    return prompts
