"""One sampled sequence: from its tokens to the text, log probabilities and reason of a choice.

Runs for every token of every request, so it holds plain attributes and does nothing twice.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from torpor_engine.api.job import TextRules
from torpor_engine.api.logprobs import PlacedLogprobs
from torpor_engine.api.prompts import Prompt
from torpor_engine.api.stop_strings import StopMatcher
from torpor_engine.tokenizer import Detokenizer
from torpor_protocol.requests import Finished, FinishReason, TokenLogprobs

if TYPE_CHECKING:
    from torpor_engine.api.generation import Generation

CHARS_PER_LOGPROBS = 512


class Choice:
    """``tokens`` counts what was sampled, the token that ended it included. ``last_time``: of its
    newest token, on the event loop's clock (0 = none yet). ``finish_reason`` is set at the end."""

    __slots__ = (
        "_detokenizer",
        "_length",
        "_logprobs",
        "_min_tokens",
        "_placed",
        "_stops",
        "_text",
        "cached_tokens",
        "finish_reason",
        "id",
        "index",
        "last_time",
        "owner",
        "prompt",
        "stop_reason",
        "tokens",
    )

    def __init__(
        self,
        owner: Generation,
        request_id: int,
        index: int,
        prompt: Prompt,
        detokenizer: Detokenizer,
        rules: TextRules,
        min_tokens: int,
    ) -> None:
        self.owner = owner
        self.id = request_id
        self.index = index
        self.prompt = prompt
        self.tokens = 0
        self.cached_tokens = 0
        self.last_time = 0.0
        self.finish_reason: FinishReason | None = None
        self.stop_reason: str | int | None = None
        self._detokenizer = detokenizer
        self._stops = StopMatcher(rules.stop, rules.include_stop) if rules.stop else None
        self._min_tokens = min_tokens
        self._text: list[str] = [prompt.text] if rules.echo else []
        self._length = len(prompt.text) if rules.echo else 0
        self._logprobs: deque[TokenLogprobs] = deque()
        self._placed: list[PlacedLogprobs] = []

    def expect(self, entry: TokenLogprobs) -> None:
        """Log probabilities of a token that comes next."""
        self._logprobs.append(entry)

    def accept(self, token: int) -> bool:
        """Take one token; True when its text completes a stop string, which ends the choice."""
        self.tokens += 1
        if self._logprobs:
            self._placed.append(PlacedLogprobs(self._logprobs.popleft(), self._length))
        text = self._detokenizer.step(token)
        return bool(text) and self._add(text)

    def finish(self, end: Finished, include_stop: bool) -> FinishReason:
        """The core ended it with `stop` or `length`: hand out what was held back.

        Gives the reason, which differs where that text completes a stop string."""
        if end.stop_token >= 0:
            self.tokens += 1
            shown = self._detokenizer.step(end.stop_token) if include_stop else ""
            self.stop_reason = end.stop_token
        else:
            shown = ""
        if not self._add(shown + self._detokenizer.flush()):
            if self._stops is not None:
                self._text.append(self._stops.rest())
            self.finish_reason = end.reason
        return self.finish_reason or end.reason

    def take_text(self) -> str:
        """The text since the last call."""
        if len(self._text) == 1:
            return self._text.pop()
        text = "".join(self._text)
        self._text.clear()
        return text

    def take_logprobs(self) -> list[PlacedLogprobs]:
        """The log probabilities since the last call."""
        placed, self._placed = self._placed, []
        return placed

    @property
    def unsent_chars(self) -> int:
        """About the memory that waits to be taken, in characters."""
        return sum(map(len, self._text)) + CHARS_PER_LOGPROBS * len(self._placed)

    def _add(self, text: str) -> bool:
        self._length += len(text)
        if self._stops is not None and self.tokens > self._min_tokens:
            text = self._stops.feed(text)
            if self._stops.found is not None:
                self.finish_reason = "stop"
                self.stop_reason = self._stops.found
        if text:
            self._text.append(text)
        return self.finish_reason is not None
