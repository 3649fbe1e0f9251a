"""Log probabilities as the two APIs show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torpor_engine.tokenizer import Tokenizer
from torpor_protocol.arrays import unpack_i32
from torpor_protocol.requests import TokenLogprobs

# JSON has no infinity; vLLM writes this for it.
FLOOR = -9999.0


class PlacedLogprobs(NamedTuple):
    """``offset``: where the token's text begins in the answer's text, in characters."""

    entry: TokenLogprobs
    offset: int


def completion_logprobs(entries: Sequence[PlacedLogprobs], tokenizer: Tokenizer) -> dict[str, Any]:
    """Four parallel lists. The chosen token is among its own alternatives, with the same value."""
    texts = [tokenizer.token_text(placed.entry.token).text for placed in entries]
    return {
        "tokens": texts,
        "token_logprobs": [_floored(placed.entry.logprob) for placed in entries],
        "top_logprobs": [
            _alternatives(text, placed.entry, tokenizer)
            for text, placed in zip(texts, entries, strict=True)
        ],
        "text_offset": [placed.offset for placed in entries],
    }


def chat_logprobs(entries: Sequence[PlacedLogprobs], tokenizer: Tokenizer) -> dict[str, Any]:
    return {"content": [_chat_entry(placed.entry, tokenizer) for placed in entries]}


def _alternatives(text: str, entry: TokenLogprobs, tokenizer: Tokenizer) -> dict[str, float]:
    """Tokens that look alike (parts of characters) share a key: the chosen one keeps it."""
    found = {text: _floored(entry.logprob)}
    for token, value in _top(entry):
        found.setdefault(tokenizer.token_text(token).text, _floored(value))
    return found


def _chat_entry(entry: TokenLogprobs, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        **_chat_token(entry.token, entry.logprob, tokenizer),
        "top_logprobs": [_chat_token(token, value, tokenizer) for token, value in _top(entry)],
    }


def _chat_token(token: int, value: float, tokenizer: Tokenizer) -> dict[str, Any]:
    text, raw = tokenizer.token_text(token)
    return {"token": text, "logprob": _floored(value), "bytes": list(raw)}


def _top(entry: TokenLogprobs) -> list[tuple[int, float]]:
    return list(zip(unpack_i32(entry.top_ids).tolist(), entry.top_logprobs, strict=True))


def _floored(value: float) -> float:
    return value if value > FLOOR else FLOOR
