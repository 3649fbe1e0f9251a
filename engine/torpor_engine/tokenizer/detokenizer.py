"""Text of one sequence, token by token.

`DecodeStream` knows every decoder's rules about spaces and about characters that need several
tokens. What it leaves open is closed here: the first space after the prompt, text still held back
when the sequence ends, and sequences that never complete a character.
"""

from __future__ import annotations

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

REPLACEMENT = "\ufffd"
PROMPT_TAIL = 6
# A character has at most 4 bytes, so more tokens than this without text are no character.
MAX_HELD = 16


class Detokenizer:
    """`hidden`: ids that leave no text (special tokens, when they are to be skipped)."""

    __slots__ = ("_held", "_hidden", "_last", "_stream", "_tokenizer")

    def __init__(
        self, tokenizer: Tokenizer, hidden: frozenset[int], prompt_tail: list[int]
    ) -> None:
        self._tokenizer = tokenizer
        self._hidden = hidden
        tail = [token for token in prompt_tail if token not in hidden]
        if tail and self._decode(tail).endswith(REPLACEMENT):
            tail = []  # half a character: the stream would give the prompt's text again
        self._last: list[int] = []
        self._held: list[int] = []
        self._restart(tail)

    def step(self, token: int) -> str:
        """The text that ``token`` completes, often "" when it ends within a character."""
        if token in self._hidden:
            return ""
        self._held.append(token)
        try:
            text: str | None = self._stream.step(self._tokenizer, token)
        except Exception as error:
            if "prefix" not in str(error):
                raise
            return self.flush()
        if text is None:
            return self.flush() if len(self._held) >= MAX_HELD else ""
        self._last, self._held = self._held, []
        return text

    def flush(self) -> str:
        """The text held back: what is no whole character becomes a replacement character."""
        if not self._held:
            return ""
        before = self._decode(self._last)
        whole = self._decode(self._last + self._held)
        text = whole[len(before) :] if whole.startswith(before) else self._decode(self._held)
        self._restart(self._held)
        return text

    def _restart(self, context: list[int]) -> None:
        self._stream = DecodeStream(ids=context, skip_special_tokens=False)
        self._last = context
        self._held = []

    def _decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False)
        return text
