"""Prompts to token ids: short texts at once, long ones in a thread while the event loop goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from torpor_engine.api.errors import invalid
from torpor_engine.api.prompts import Prompt, PromptLimits
from torpor_engine.api.schemas.chat import ChatMessage
from torpor_engine.api.settings import ApiSettings
from torpor_engine.tokenizer import ChatTemplateError, Tokenizer

ResultT = TypeVar("ResultT")
Encode = Callable[[str], list[int]]


class PromptEncoder:
    """``limits``: of the model. Every method raises ApiError (400) for prompts it cannot take."""

    def __init__(self, tokenizer: Tokenizer, limits: PromptLimits, settings: ApiSettings) -> None:
        self._tokenizer = tokenizer
        self.limits = limits
        self._inline_chars = settings.inline_chars
        self._pool = ThreadPoolExecutor(settings.tokenizer_threads, "tokenizer")

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def prompts(
        self, entries: Sequence[str | list[int]], *, special: bool, echo: bool
    ) -> list[Prompt]:
        """Of a completion, in order."""

        def work(encode: Encode) -> list[Prompt]:
            return [self._prompt(entry, encode, echo) for entry in entries]

        prompts = await self._run(work, sum(map(len, entries)), special)
        for prompt in prompts:
            self.limits.check_ids(prompt.ids, "prompt")
        return prompts

    async def text(self, text: str, *, special: bool) -> list[int]:
        """Of a bare text, which may be empty."""
        self.limits.check_text(text, "prompt")
        return await self._run(lambda encode: encode(text), len(text), special)

    async def messages(
        self, messages: Sequence[ChatMessage], *, add_generation_prompt: bool
    ) -> Prompt:
        """Through the chat template, which writes the special tokens itself."""

        def work(encode: Encode) -> Prompt:
            text = self._render(messages, add_generation_prompt)
            return Prompt(encode(text), text)

        chars = sum(len(message.content or "") for message in messages)
        prompt = await self._run(work, chars, special=False)
        self.limits.check_ids(prompt.ids, "messages")
        return prompt

    def _prompt(self, entry: str | list[int], encode: Encode, echo: bool) -> Prompt:
        if isinstance(entry, list):
            return Prompt(entry, self._tokenizer.decode(entry) if echo else "")
        return Prompt(encode(entry), entry)

    def _render(self, messages: Sequence[ChatMessage], add_generation_prompt: bool) -> str:
        template = self._tokenizer.chat_template
        if template is None:
            message = "This model has no chat template. Use /v1/completions."
            raise invalid(message, "messages", code="no_chat_template")
        try:
            text = template.render(
                [message.for_template() for message in messages],
                add_generation_prompt=add_generation_prompt,
            )
        except ChatTemplateError as error:
            raise invalid(str(error), "messages") from None
        self.limits.check_text(text, "messages")
        return text

    async def _run(self, work: Callable[[Encode], ResultT], chars: int, special: bool) -> ResultT:
        """``special``: whether the tokenizer adds the special tokens of a bare text."""
        if chars <= self._inline_chars:
            return work(partial(self._tokenizer.encode, add_special_tokens=special))
        encode = partial(self._tokenizer.encode_long, add_special_tokens=special)
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, encode)
