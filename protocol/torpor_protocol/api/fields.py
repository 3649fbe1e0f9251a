"""Finding a field's declaration by its path, for the words of an error message."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from torpor_protocol.words import shorten

Path = Sequence[str | int]


def dotted(path: Path) -> str:
    """``spec.engine.env[0].name``; a map's key that is not a plain word is quoted in brackets."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif not re.fullmatch("[A-Za-z0-9_-]{1,60}", part):
            text += f"[{shorten(part)}]"
        else:
            text += f".{part}"
    return text.removeprefix(".")


def by_alias(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def model_at(root: type[BaseModel], path: Path) -> type[BaseModel] | None:
    """The model whose fields follow ``path``, or None where something else does."""
    found = _annotation_at(root, path)
    return found if isinstance(found, type) and issubclass(found, BaseModel) else None


def field_at(root: type[BaseModel], path: Path) -> FieldInfo | None:
    """The declaration of the field that ``path`` ends in, or None for an item of a list or map."""
    parent = model_at(root, path[:-1]) if path else None
    return by_alias(parent).get(str(path[-1])) if parent else None


def bounds(field: FieldInfo | None) -> tuple[int | None, int | None]:
    """Smallest and largest whole number of a field."""
    least = most = None
    for constraint in field.metadata if field else ():
        if isinstance(constraint, Ge) and isinstance(constraint.ge, int):
            least = constraint.ge
        if isinstance(constraint, Le) and isinstance(constraint.le, int):
            most = constraint.le
    return least, most


def places_of(root: type[BaseModel], name: str, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Dotted paths of every field of that name, through objects but not through lists."""
    for alias, field in by_alias(root).items():
        below = (*path, alias)
        if alias == name:
            yield dotted(below)
        inner = _bare(field.annotation)
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from places_of(inner, name, below)


def _annotation_at(root: Any, path: Path) -> Any:
    found: Any = root
    for part in path:
        found = _bare(found)
        if isinstance(found, type) and issubclass(found, BaseModel):
            field = by_alias(found).get(str(part))
            found = field.annotation if field else None
        else:
            found = (get_args(found) or (None,))[-1]  # the items of a list, the values of a map
    return _bare(found)


def _bare(annotation: Any) -> Any:
    """Without ``Annotated`` and ``| None``."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _bare(get_args(annotation)[0])
    if origin in (Union, UnionType):
        rest = [choice for choice in get_args(annotation) if choice is not type(None)]
        return _bare(rest[0]) if len(rest) == 1 else annotation
    return annotation
