"""One HTTP request, checked and tokenized: all that the rest of its way needs to know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from torpor_engine.api.prompts import Prompt
from torpor_engine.api.sampling import SEED_MASK
from torpor_protocol.arrays import pack_i32
from torpor_protocol.requests import AddRequest, SamplingParams

Kind = Literal["chat", "completion"]


@dataclass(frozen=True)
class TextRules:
    """What of the tokens' text is handed out."""

    stop: tuple[str, ...] = ()
    include_stop: bool = False
    skip_special_tokens: bool = True
    echo: bool = False


@dataclass(frozen=True)
class Delivery:
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False


@dataclass(frozen=True)
class Job:
    """``id``: the answer's id. ``n`` choices per prompt; choice i of a prompt draws with seed + i.

    ``created``: unix seconds."""

    id: str
    kind: Kind
    model: str
    created: int
    prompts: list[Prompt]
    n: int
    sampling: SamplingParams
    max_context: int
    rules: TextRules
    delivery: Delivery
    priority: int = 0
    cache_salt: str = ""

    def core_request(self, request_id: int, index: int) -> AddRequest:
        """Of choice ``index``, counted over all prompts: prompt 0's choices come first."""
        prompt = self.prompts[index // self.n].ids
        room = min(self.sampling.max_tokens, self.max_context - len(prompt))
        sampling = msgspec.structs.replace(
            self.sampling,
            max_tokens=room,
            min_tokens=min(self.sampling.min_tokens, room),
            seed=(self.sampling.seed + index % self.n) & SEED_MASK,
        )
        return AddRequest(
            id=request_id,
            prompt=pack_i32(prompt),
            sampling=sampling,
            priority=self.priority,
            cache_salt=self.cache_salt,
        )
