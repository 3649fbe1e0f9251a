"""Rules over several fields: the CEL for the API server and the check for Python in one object.

``ApiModel`` runs ``holds`` after validation and writes ``cel`` into the schema as
``x-kubernetes-validations``, so a manifest is refused for the same reason by ``kubectl apply``
and by ``torpor serve``. CEL never relies on defaults being filled in: see ``value_or``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic_core import PydanticCustomError

REFUSED = "refused"  # error type of everything that carries its own words


@dataclass(frozen=True)
class Rule:
    """``field``: path inside the model, camelCase. ``must`` goes on after the field's name and
    value ("must not exceed ..."); ``fix`` is a whole sentence. ``holds`` gets the model."""

    field: str
    cel: str
    must: str
    fix: str
    holds: Callable[[Any], bool]

    def refusal(self) -> PydanticCustomError:
        return refusal(self.must, self.fix, self.field)

    def as_validation(self) -> dict[str, str]:
        """One entry of ``x-kubernetes-validations``."""
        return {"rule": self.cel, "message": f"{self.field} {self.must}. {self.fix}"}


def refusal(must: str, fix: str = "", field: str = "") -> PydanticCustomError:
    """A validation error whose words reach the user unchanged."""
    return PydanticCustomError(REFUSED, "{must}", {"must": must, "fix": fix, "field": field})


def value_or(path: str, default: str | int | bool) -> str:
    """CEL for the value at ``path`` (dotted, below ``self``) or the default where it is absent."""
    parts = path.split(".")
    present = [f"has(self.{'.'.join(parts[: count + 1])})" for count in range(len(parts))]
    if isinstance(default, bool):
        literal = str(default).lower()
    else:
        literal = f"'{default}'" if isinstance(default, str) else str(default)
    return f"({' && '.join(present)} ? self.{path} : {literal})"
