"""The four forms of a completion's prompt, and what the model can take of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torpor_engine.api.errors import context_length_exceeded, invalid
from torpor_engine.tokenizer import Tokenizer
from torpor_protocol.limits import MAX_PROMPTS

PARAM = "prompt"


@dataclass(frozen=True)
class Prompt:
    """``text`` is what `echo` gives back: the client's text, or the tokens' text."""

    ids: list[int]
    text: str = ""


class PromptLimits:
    """What the model can take: ``max_tokens`` of context and ids below ``vocab_size``."""

    def __init__(self, tokenizer: Tokenizer, max_tokens: int, vocab_size: int) -> None:
        self._longest_token = tokenizer.max_token_chars
        self.max_tokens = max_tokens
        self.vocab_size = vocab_size

    def check_text(self, text: str, param: str) -> None:
        """Refuses what is too long whatever its tokens are, before time goes into finding them."""
        if len(text) > self.max_tokens * self._longest_token:
            raise context_length_exceeded(self.max_tokens, None, param)

    def check_ids(self, ids: list[int], param: str) -> None:
        """At least one token must be left for the answer."""
        if not ids:
            raise invalid("The prompt is empty: it has no token.", param)
        if len(ids) >= self.max_tokens:
            raise context_length_exceeded(self.max_tokens, len(ids), param)


def split_prompts(value: Any, limits: PromptLimits) -> list[str | list[int]]:
    """One entry per prompt, each a text or valid token ids. Raises ApiError (400)."""
    if isinstance(value, str):
        entries: list[Any] = [value]
    elif not isinstance(value, list) or not value:
        raise invalid("'prompt' must be a text, token ids, or a list of either.", PARAM)
    else:
        entries = value if isinstance(value[0], str | list) else [value]
        if len({isinstance(entry, str) for entry in entries}) > 1:
            raise invalid("The entries of 'prompt' must be all texts or all lists of ids.", PARAM)
    if len(entries) > MAX_PROMPTS:
        raise invalid(f"'prompt' has more than {MAX_PROMPTS} entries.", PARAM)
    return [_entry(entry, limits) for entry in entries]


def _entry(entry: Any, limits: PromptLimits) -> str | list[int]:
    if isinstance(entry, str):
        if not entry:
            raise invalid("The prompt is empty: give at least one character.", PARAM)
        limits.check_text(entry, PARAM)
        return entry
    if not isinstance(entry, list):
        raise invalid("An entry of 'prompt' is neither a text nor token ids.", PARAM)
    limits.check_ids(entry, PARAM)
    for token in entry:
        if type(token) is not int or not 0 <= token < limits.vocab_size:
            message = f"A token id must be an integer from 0 to {limits.vocab_size - 1}."
            raise invalid(message, PARAM)
    return entry
