"""What one token stands for, as text and as bytes: the log probabilities of an answer show both.

A token may be part of a character only, so its text alone cannot be put together again; its bytes
can. They are read from the vocabulary, whose entries are written in one of two alphabets.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tokenizers import Tokenizer

_BYTE_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_WORD_START = "▁"  # SentencePiece writes a space so


class TokenText(NamedTuple):
    """`text` has replacement characters where `raw` is no whole character."""

    text: str
    raw: bytes


def byte_alphabet() -> dict[str, int]:
    """The printable stand-ins that byte-level vocabularies write for the 256 bytes.

    A printable Latin-1 character stands for its own byte; the others are numbered from 256 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(256 + i): byte for i, byte in enumerate(others)}


class TokenTexts:
    """Looks tokens up and keeps what it found: never more entries than the vocabulary has."""

    def __init__(self, tokenizer: Tokenizer, decoders: frozenset[str]) -> None:
        self._tokenizer = tokenizer
        self._added = {
            token_id: token.content
            for token_id, token in tokenizer.get_added_tokens_decoder().items()
        }
        self._alphabet = byte_alphabet() if "ByteLevel" in decoders else None
        self._known: dict[int, TokenText] = {}

    def __getitem__(self, token: int) -> TokenText:
        """An id that the vocabulary lacks has the empty text (models pad their vocabulary)."""
        known = self._known.get(token)
        if known is None:
            raw = self._bytes(token)
            known = TokenText(raw.decode("utf-8", errors="replace"), raw)
            if raw:
                self._known[token] = known
        return known

    def _bytes(self, token: int) -> bytes:
        written = self._added.get(token)
        if written is not None:
            return written.encode()
        written = self._tokenizer.id_to_token(token)
        if written is None:
            return b""
        if self._alphabet is not None:
            return bytes(self._alphabet[char] for char in written if char in self._alphabet)
        fallback = _BYTE_FALLBACK.fullmatch(written)
        if fallback is not None:
            return bytes([int(fallback[1], 16)])
        return written.replace(_WORD_START, " ").encode()
