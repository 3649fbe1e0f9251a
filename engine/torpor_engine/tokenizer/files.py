"""The tokenizer's files of a model folder, read once and checked.

`tokenizer.json` belongs to the `tokenizers` library; from it only the kind of decoder is read here.
`tokenizer_config.json` names the special tokens and may hold the chat template.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from torpor_protocol.errors import ModelError
from torpor_protocol.model_files import check_readable

MAX_FILE_BYTES = 256 * 2**20
_SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token")


class TokenizerFiles(msgspec.Struct, frozen=True):
    """`special`: name (`bos_token`, ...) to its text. `decoders`: the decoders' type names."""

    tokenizer: Path
    special: dict[str, str]
    chat_template: str | None
    decoders: frozenset[str]


class _TokenizerJson(msgspec.Struct):
    decoder: dict[str, Any] | None = None


def read_files(folder: Path) -> TokenizerFiles:
    """Raises ModelError when a file is missing or is not what it must be."""
    config = _read_object(folder / "tokenizer_config.json")
    tokenizer = folder / "tokenizer.json"
    try:
        decoder = msgspec.json.decode(_read(tokenizer), type=_TokenizerJson).decoder
    except msgspec.MsgspecError as error:
        raise _invalid(tokenizer) from error
    return TokenizerFiles(
        tokenizer=tokenizer,
        special=_special_tokens(config),
        chat_template=_chat_template(folder, config),
        decoders=frozenset(_decoder_types(decoder)),
    )


def _read(path: Path) -> bytes:
    check_readable(path)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ModelError(f"{path} is larger than {MAX_FILE_BYTES} bytes.", "Check the file.")
        return path.read_bytes()
    except OSError as error:
        raise ModelError(
            f"{path} cannot be read: {error.strerror}.",
            "Give a model folder that holds tokenizer.json and tokenizer_config.json.",
        ) from error


def _read_object(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(_read(path), type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise _invalid(path) from error


def _invalid(path: Path) -> ModelError:
    return ModelError(f"{path} is not the JSON object it must be.", "Fetch the model again.")


def _special_tokens(config: dict[str, Any]) -> dict[str, str]:
    """A special token is written as its text, or as an object whose `content` is the text."""
    special = {}
    for name in _SPECIAL_NAMES:
        value = config.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            special[name] = text
    return special


def _chat_template(folder: Path, config: dict[str, Any]) -> str | None:
    """A file of its own wins; several named templates may be given, and `default` is meant."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return _read(path).decode()
        except UnicodeDecodeError as error:
            raise ModelError(f"{path} is not UTF-8.", "Fetch the model again.") from error
    template = config.get("chat_template")
    if isinstance(template, list):
        named = [item for item in template if isinstance(item, dict)]
        template = next((t.get("template") for t in named if t.get("name") == "default"), None)
    return template if isinstance(template, str) else None


def _decoder_types(decoder: dict[str, Any] | None) -> list[str]:
    if decoder is None:
        return []
    nested = [name for child in decoder.get("decoders", []) for name in _decoder_types(child)]
    return [str(decoder.get("type")), *nested]
