"""In what a completion and a chat completion differ on the wire: one row for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torpor_engine.api.job import Kind
from torpor_engine.api.logprobs import PlacedLogprobs, chat_logprobs, completion_logprobs
from torpor_engine.tokenizer import Tokenizer

LogprobForm = Callable[[Sequence[PlacedLogprobs], Tokenizer], dict[str, Any]]


@dataclass(frozen=True)
class Form:
    """``object`` and ``chunk_object`` name a whole answer and a chunk of a stream.

    The byte strings are the parts of a chunk's choice after its index: ``opening`` for the first
    chunk, ``before`` and ``after`` around a text, ``closing`` for the last chunk."""

    object: str
    chunk_object: str
    opening: bytes
    before: bytes
    after: bytes
    closing: bytes
    logprobs: LogprobForm
    message: Callable[[str], dict[str, Any]]


FORMS: dict[Kind, Form] = {
    "chat": Form(
        object="chat.completion",
        chunk_object="chat.completion.chunk",
        opening=b',"delta":{"role":"assistant","content":""}',
        before=b',"delta":{"content":',
        after=b"}",
        closing=b',"delta":{}',
        logprobs=chat_logprobs,
        message=lambda text: {"message": {"role": "assistant", "content": text}},
    ),
    "completion": Form(
        object="text_completion",
        chunk_object="text_completion",
        opening=b"",
        before=b',"text":',
        after=b"",
        closing=b',"text":""',
        logprobs=completion_logprobs,
        message=lambda text: {"text": text},
    ),
}
