"""The model's tokenizer, as the API process uses it.

Encoding a long text takes a while; callers on the event loop hand it to a thread.
"""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path

from tokenizers import Tokenizer as LibraryTokenizer

from torpor_engine.tokenizer.chat_template import ChatTemplate
from torpor_engine.tokenizer.detokenizer import PROMPT_TAIL, Detokenizer
from torpor_engine.tokenizer.files import TokenizerFiles, read_files
from torpor_engine.tokenizer.token_text import TokenText, TokenTexts
from torpor_protocol.errors import ModelError

_NONE: frozenset[int] = frozenset()
# The library would start a thread per core for batches; the cores belong to the model.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


class Tokenizer:
    """`chat_template` is None for a model that was not trained to chat."""

    def __init__(self, library: LibraryTokenizer, files: TokenizerFiles) -> None:
        library.no_truncation()
        library.no_padding()
        self._library = library
        self._special_ids = frozenset(
            token_id
            for token_id, token in library.get_added_tokens_decoder().items()
            if token.special
        )
        self._texts = TokenTexts(library, files.decoders)
        self.special = dict(files.special)
        template = files.chat_template
        self.chat_template = None if template is None else ChatTemplate(template, files.special)

    @classmethod
    def from_folder(cls, folder: Path) -> Tokenizer:
        """Raises ModelError when the folder has no usable tokenizer."""
        files = read_files(folder)
        try:
            library = LibraryTokenizer.from_file(str(files.tokenizer))
        except Exception as error:
            raise ModelError(
                f"{files.tokenizer} is not a tokenizer that can be read.",
                "Fetch the model again, or save it with a current version of transformers.",
            ) from error
        return cls(library, files)

    @property
    def vocab_size(self) -> int:
        """Entries, added tokens included; a model may have more rows than that."""
        size: int = self._library.get_vocab_size(with_added_tokens=True)
        return size

    @cached_property
    def max_token_chars(self) -> int:
        """No token stands for more characters, so a text has at least chars / this tokens."""
        return max(map(len, self._library.get_vocab(with_added_tokens=True)), default=1)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """``add_special_tokens``: what the model wants around a bare text, often a bos token."""
        ids: list[int] = self._library.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def encode_long(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The same for a thread: only batches let other threads run meanwhile."""
        [encoded] = self._library.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        ids: list[int] = encoded.ids
        return ids

    def decode(self, ids: list[int], *, skip_special_tokens: bool = False) -> str:
        text: str = self._library.decode(ids, skip_special_tokens=skip_special_tokens)
        return text

    def detokenizer(self, prompt: list[int], *, skip_special_tokens: bool = True) -> Detokenizer:
        """Of a sequence that goes on after ``prompt`` (its last tokens are enough)."""
        hidden = self._special_ids if skip_special_tokens else _NONE
        return Detokenizer(self._library, hidden, prompt[-PROMPT_TAIL:])

    def token_text(self, token: int) -> TokenText:
        return self._texts[token]
