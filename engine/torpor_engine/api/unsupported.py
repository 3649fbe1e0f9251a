"""Fields that ask for what this server does not do: refused, never ignored.

A field that only tunes or labels a request is ignored; one that promises the client a different
text is not. Each rule says which values ask for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torpor_engine.api.errors import unsupported

Harmless = Callable[[Any], bool]


def _empty(value: Any) -> bool:
    """Null, false, an empty list, text or object: nothing is asked for."""
    return value is None or value is False or value in ([], {}, "")


def _one(value: Any) -> bool:
    return value is None or (not isinstance(value, bool) and value == 1)


def _text_only(value: Any) -> bool:
    return value is None or value == ["text"]


def _text_format(value: Any) -> bool:
    return value is None or (isinstance(value, dict) and value.get("type") == "text")


def _none(value: Any) -> bool:
    return value is None or value == "none"


_STRUCTURE = "This server does not constrain the answer's form. Leave the field out."
_TOOLS = 'This server does not call tools. Leave out the field, or send tool_choice "none".'
_NOT_HERE = "This server does not have this. Leave the field out."
_TEMPLATE = "The chat template is the model's own. Leave the field out."

_RULES: dict[str, tuple[Harmless, str]] = {
    **dict.fromkeys(
        (
            "guided_json",
            "guided_regex",
            "guided_choice",
            "guided_grammar",
            "structured_outputs",
            "structural_tag",
        ),
        (_empty, _STRUCTURE),
    ),
    "response_format": (_text_format, _STRUCTURE),
    "best_of": (_one, "This server does not choose among answers. Use n."),
    "suffix": (_empty, "This server does not fill in the middle. Leave the field out."),
    **dict.fromkeys(
        (
            "prompt_embeds",
            "prompt_logprobs",
            "truncate_prompt_tokens",
            "bad_words",
            "allowed_token_ids",
            "logits_processors",
            "use_beam_search",
            "audio",
            "web_search_options",
            "documents",
            "functions",
            "continue_final_message",
        ),
        (_empty, _NOT_HERE),
    ),
    "modalities": (_text_only, "This server answers in text. Leave the field out."),
    "function_call": (_none, _TOOLS),
    "chat_template": (_empty, _TEMPLATE),
    "chat_template_kwargs": (_empty, _TEMPLATE),
}


def check_unsupported(body: Mapping[str, Any]) -> None:
    """Raises ApiError (400, `unsupported_parameter`) for the first such field."""
    for name, (harmless, message) in _RULES.items():
        if name in body and not harmless(body[name]):
            raise unsupported(message, name)
    _check_tools(body)
    _check_echo(body)
    _check_messages(body.get("messages"))


def _check_tools(body: Mapping[str, Any]) -> None:
    """`auto`, the default with tools, lets the model call one: as much a promise as `required`."""
    if _none(body.get("tool_choice")) and "tool_choice" in body and body["tool_choice"]:
        return
    if not _empty(body.get("tools")):
        raise unsupported(_TOOLS, "tools")
    if body.get("tool_choice") not in (None, "auto"):
        raise unsupported(_TOOLS, "tool_choice")


def _check_echo(body: Mapping[str, Any]) -> None:
    if body.get("echo") is True and body.get("logprobs") is not None:
        raise unsupported(
            "This server has no log probabilities of the prompt. Leave out echo or logprobs.",
            "echo",
        )


def _check_messages(messages: Any) -> None:
    for index, message in enumerate(messages if isinstance(messages, list) else ()):
        if isinstance(message, dict) and not _empty(message.get("tool_calls")):
            raise unsupported(_TOOLS, f"messages.{index}.tool_calls")
