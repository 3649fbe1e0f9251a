"""The body of POST /v1/chat/completions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from torpor_engine.api.schemas.fields import Count, Name, RequestModel, Whole
from torpor_engine.api.schemas.sampling import GenerationRequest
from torpor_protocol.limits import MAX_MESSAGES, MAX_TOP_LOGPROBS

_TEXT_PART = {
    "type": "object",
    "required": ["type", "text"],
    "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
}
_CONTENT_SCHEMA = {
    "anyOf": [{"type": "string"}, {"type": "array", "minItems": 1, "items": _TEXT_PART}],
    "description": "A text, or its parts; this server reads text only.",
}


def _flat_text(value: Any) -> Any:
    """Parts are joined by line breaks, as vLLM does for templates that want one text."""
    if not isinstance(value, list):
        return value
    if not value:
        raise ValueError("an empty list of parts has no text")
    return "\n".join(_part_text(part) for part in value)


def _part_text(part: Any) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    text = part.get("text") if isinstance(part, dict) else None
    if kind != "text" or not isinstance(text, str):
        raise ValueError("this server reads parts of type 'text' only, with a text")
    return text


Content = Annotated[str, BeforeValidator(_flat_text), WithJsonSchema(_CONTENT_SCHEMA)]


class ChatMessage(RequestModel):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    name: Name | None = None
    tool_call_id: Name | None = None

    @model_validator(mode="after")
    def _has_content(self) -> ChatMessage:
        if self.content is None and self.role != "assistant":
            raise ValueError("a message needs 'content', a text or a list of text parts")
        return self

    def for_template(self) -> dict[str, str]:
        """Templates know `system`; `developer` is its newer name at OpenAI."""
        role = "system" if self.role == "developer" else self.role
        message: dict[str, str] = {"role": role, "content": self.content or ""}
        others = {"name": self.name, "tool_call_id": self.tool_call_id}
        return message | {key: text for key, text in others.items() if text is not None}


class ChatCompletionRequest(GenerationRequest):
    """``max_completion_tokens`` is the newer name of ``max_tokens`` and wins over it."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES)]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[Whole, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    add_generation_prompt: bool | None = Field(None, description="True if left out.")
