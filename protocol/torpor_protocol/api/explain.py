"""A validation error as one sentence of cause and one of fix, without a word of pydantic.

Used for manifests and, by the operator, for the message of ``SpecValid=False``.
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from torpor_protocol.api.fields import Path, bounds, by_alias, dotted, field_at, model_at, places_of
from torpor_protocol.api.rules import REFUSED
from torpor_protocol.words import shorten


@dataclass(frozen=True)
class Problem:
    """``cause`` ends without a full stop; ``more``: how many problems there are beside this one."""

    path: str
    cause: str
    fix: str
    more: int


def explain(error: ValidationError, root: type[BaseModel]) -> Problem:
    """The first problem of a validation of ``root``."""
    first, *others = error.errors(include_url=False)
    return _Explanation(root, first).problem(len(others))


def _fold(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())


_KINDS: Final = {
    "bool_type": "true or false",
    "string_type": "a text (numbers and true or false go in quotes)",
    "list_type": "a list",
    "dict_type": "a map",
    "model_type": "a map",
    "model_attributes_type": "a map",
}


class _Explanation:
    def __init__(self, root: type[BaseModel], error: ErrorDetails) -> None:
        self.root = root
        self.error = error
        self.context: dict[str, Any] = error.get("ctx", {})
        # pydantic marks a wrong key of a map by a last part "[key]".
        self.wrong_key = len(error["loc"]) > 1 and error["loc"][-1] == "[key]"
        parts = error["loc"][:-1] if self.wrong_key else error["loc"]
        ruled = self.context.get("field", "")
        self.location: Path = (*parts, *ruled.split(".")) if ruled else parts
        self.path = dotted(self.location) or "the document"

    def problem(self, more: int) -> Problem:
        match self.error["type"]:
            case "missing":
                cause, fix = self._missing()
            case "extra_forbidden":
                cause, fix = self._unknown()
            case _:
                cause, fix = self._wrong()
        return Problem(self.path, cause, fix, more)

    def _missing(self) -> tuple[str, str]:
        return f"{self.path} is missing", f"Add {self.path}{self._example()}."

    def _unknown(self) -> tuple[str, str]:
        parent = model_at(self.root, self.location[:-1])
        known = list(by_alias(parent)) if parent else []
        name = str(self.location[-1])
        # Case and underscores are the usual slips: max_model_len for maxModelLen.
        folded = {_fold(alias): alias for alias in known}
        close = difflib.get_close_matches(_fold(name), folded, n=1, cutoff=0.6)
        nearest = dotted((*self.location[:-1], folded[close[0]])) if close else ""
        elsewhere = list(places_of(self.root, name))
        cause = f"{self.path} is not a known field"
        if close and (close[0] == _fold(name) or not elsewhere):
            return cause, f"Did you mean {nearest}?"
        if elsewhere:
            return cause, f"Did you mean {' or '.join(elsewhere[:2])}?"
        above = dotted(self.location[:-1]) or "the document"
        return cause, f"Remove it; the fields of {above} are {', '.join(known)}."

    def _wrong(self) -> tuple[str, str]:
        must = self._must()
        value = self._value()
        if self.wrong_key:
            key = f"the key {shorten(self.location[-1])} of {dotted(self.location[:-1])}"
            return f"{key} {must}", "Correct the key."
        cause = f"{self.path} is {value}, but {must}" if value else f"{self.path} {must}"
        return cause, self.context.get("fix") or f"Correct {self.path}{self._example()}."

    def _must(self) -> str:
        kind = self.error["type"]
        if kind == REFUSED:
            return str(self.context["must"])
        if kind in _KINDS:
            return f"must be {_KINDS[kind]}"
        if kind == "literal_error":
            return f"must be {self.context['expected'].replace(chr(39), '')}"
        if kind in ("too_long", "too_short"):
            limit = self.context.get("max_length", self.context.get("min_length"))
            return f"must have {'at most' if kind == 'too_long' else 'at least'} {limit} entries"
        return self._range() if self._is_number() else "is not accepted there"

    def _is_number(self) -> bool:
        return self.error["type"] in ("int_type", "greater_than_equal", "less_than_equal")

    def _range(self) -> str:
        least, most = bounds(field_at(self.root, self.location))
        least = self.context.get("ge", least)
        most = self.context.get("le", most)
        if least is not None and most is not None:
            return f"must be a whole number from {least} to {most}"
        if least is not None:
            return f"must be a whole number of at least {least}"
        return "must be a whole number" + (f" of at most {most}" if most is not None else "")

    def _value(self) -> str:
        """The value at fault; empty where the message is about something that is absent."""
        value: Any = self.error["input"]
        for part in filter(None, self.context.get("field", "").split(".")):
            value = value.get(part) if isinstance(value, dict) else None
        if value is None or (self.error["type"] == REFUSED and isinstance(value, dict | list)):
            return ""
        return shorten(value)

    def _example(self) -> str:
        field = field_at(self.root, self.location)
        if field is None or not field.examples:
            return ""
        example = field.examples[0]
        text = example if isinstance(example, str) else json.dumps(example)
        return f", for example {text}"
