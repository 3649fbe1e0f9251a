"""Messages to one text, as the model was trained to read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError

from torpor_engine.tokenizer.template_env import chat_environment
from torpor_protocol.errors import ModelError, TorporError
from torpor_protocol.limits import MAX_RENDERED_CHARS

MAX_REASON_CHARS = 300


class ChatTemplateError(TorporError):
    """The template refuses these messages, or cannot render them."""


class ChatTemplate:
    """`special`: the special tokens by name, which templates write by themselves."""

    def __init__(self, source: str, special: Mapping[str, str]) -> None:
        try:
            self._template = chat_environment().from_string(source)
        except TemplateSyntaxError as error:
            raise ModelError(
                f"The model's chat template is not valid Jinja: {error.message}.",
                "Fetch the model again, or mend chat_template.jinja in its folder.",
            ) from error
        self._special = dict(special)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt's text, special tokens included.

        Raises ChatTemplateError, whose text may be shown to the client."""
        variables = {
            **self._special,
            **(options or {}),
            "messages": [dict(message) for message in messages],
            "tools": None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return self._bounded(variables)
        except TemplateError as error:
            reason = str(error.message or "no reason given")[:MAX_REASON_CHARS]
            raise ChatTemplateError(
                f"The model's chat template refuses these messages: {reason}.".replace("..", ".")
            ) from error
        except (TypeError, ValueError, LookupError, ArithmeticError, RecursionError) as error:
            raise ChatTemplateError(
                "The model's chat template cannot render these messages.",
                "Send roles and contents of the kinds that the model was trained on.",
            ) from error

    def _bounded(self, variables: dict[str, Any]) -> str:
        pieces: list[str] = []
        length = 0
        for piece in self._template.generate(variables):
            length += len(piece)
            if length > MAX_RENDERED_CHARS:
                raise ChatTemplateError("The chat template's text is too long for any model.")
            pieces.append(piece)
        return "".join(pieces)
