"""The body of POST /v1/completions."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from torpor_engine.api.schemas.fields import Prompt, Whole
from torpor_engine.api.schemas.sampling import GenerationRequest
from torpor_protocol.limits import MAX_TOP_LOGPROBS

DEFAULT_MAX_TOKENS = 16


class CompletionRequest(GenerationRequest):
    """``logprobs``: alternatives per token. ``echo``: the prompt's text before each answer."""

    prompt: Prompt
    logprobs: Annotated[Whole, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    echo: bool | None = None
    add_special_tokens: bool | None = Field(None, description="True if left out.")
