"""Bodies and answers of POST /tokenize and POST /detokenize."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, model_validator

from torpor_engine.api.schemas.chat import ChatMessage
from torpor_engine.api.schemas.fields import Name, RequestModel, TokenId
from torpor_protocol.limits import MAX_MESSAGES


class TokenizeRequest(RequestModel):
    """Exactly one of ``prompt`` and ``messages``."""

    model: Name | None = None
    prompt: str | None = None
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES)] | None = (
        None
    )
    add_special_tokens: bool | None = Field(None, description="Of a prompt; True if left out.")
    add_generation_prompt: bool | None = Field(None, description="Of messages; True if left out.")
    return_token_strs: bool | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> TokenizeRequest:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give exactly one of 'prompt' and 'messages'")
        return self


class TokenizeResponse(BaseModel):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeRequest(RequestModel):
    model: Name | None = None
    tokens: list[TokenId]


class DetokenizeResponse(BaseModel):
    prompt: str
