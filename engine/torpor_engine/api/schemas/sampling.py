"""The fields that a completion and a chat completion share: how tokens are drawn, how sent."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from torpor_engine.api.schemas.fields import (
    Count,
    LogitBias,
    Name,
    RequestModel,
    StopStrings,
    TokenId,
    Whole,
)
from torpor_protocol.limits import MAX_CHOICES, MAX_STOP_TOKEN_IDS

Penalty = Annotated[float, Field(ge=-2, le=2)]


class StreamOptions(RequestModel):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class GenerationRequest(RequestModel):
    """Null and absent are the same; the defaults are OpenAI's where OpenAI has the field."""

    model: Name | None = Field(None, description="One of /v1/models; left out: the first.")
    n: Annotated[Whole, Field(ge=1, le=MAX_CHOICES)] | None = Field(
        None, description="Answers per prompt, each with its own seed (seed + its number)."
    )
    max_tokens: Count | None = Field(None, description="Tokens at most; the context also bounds.")
    temperature: Annotated[float, Field(ge=0, le=2)] | None = Field(
        None, description="0 takes the likeliest token always; 1 if left out."
    )
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[Whole, Field(ge=-1, le=2**31 - 1)] | None = Field(
        None, description="0 or -1: off."
    )
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    logit_bias: LogitBias | None = None
    seed: Annotated[Whole, Field(ge=-(2**63), le=2**63 - 1)] | None = Field(
        None, description="The same seed and request give the same answer."
    )
    stop: StopStrings = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=MAX_STOP_TOKEN_IDS)] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    min_tokens: Annotated[Whole, Field(ge=0, le=2**31 - 1)] | None = None
    skip_special_tokens: bool | None = Field(None, description="True if left out.")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    priority: Annotated[Whole, Field(ge=-(2**31), le=2**31 - 1)] | None = Field(
        None, description="A lower number is served earlier."
    )
    cache_salt: Name | None = Field(
        None, description="Prefixes are shared only between requests with the same salt."
    )
