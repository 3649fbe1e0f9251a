"""Kubernetes quantities: a whole number, or a text such as ``2Gi``.

The text is kept as it was written, so that a manifest that is read and written again is the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Annotated, Any, Final

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from torpor_protocol.api.rules import refusal

MAX_QUANTITY: Final = 2**63 - 1

_NUMBER = r"[0-9]{1,19}(\.[0-9]{1,9})?"
_AMOUNT: Final = f"^{_NUMBER}([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{{1,2}})?$"
# Never less than one byte, which a pattern can say and the API server's cost limits for CEL allow.
_BYTES: Final = (
    r"^([1-9][0-9]{0,18}(\.[0-9]{1,9})?([KMGTPE]i|[kMGTPE]|[eE][+]?[0-9]{1,2})?"
    r"|0\.0{0,2}[1-9][0-9]{0,6}([KMGTPE]i|[kMGTPE]))$"
)
_SPLIT: Final = re.compile(r"([0-9.]+)([eE][+-]?[0-9]+)?([a-zA-Z]*)")
_SCALE: Final[dict[str, Decimal]] = {
    "": Decimal(1),
    **{suffix: Decimal(10) ** power for suffix, power in zip("num", (-9, -6, -3), strict=True)},
    **{suffix: Decimal(1000) ** (power + 1) for power, suffix in enumerate("kMGTPE")},
    **{suffix + "i": Decimal(1024) ** (power + 1) for power, suffix in enumerate("KMGTPE")},
}


def quantity_value(quantity: int | str) -> Decimal:
    """The exact value: cores for cpu, bytes for memory. ValueError names a malformed quantity."""
    if isinstance(quantity, int):
        return Decimal(quantity)
    split = _SPLIT.fullmatch(quantity) if re.fullmatch(_AMOUNT, quantity) else None
    if split is None:
        raise ValueError(f"{quantity[:40]!r} is not a quantity such as 2Gi, 500M or 1073741824")
    number, exponent, suffix = split.groups()
    return Decimal(number + (exponent or "")) * _SCALE[suffix]


def parse_quantity(quantity: int | str) -> int:
    """Bytes, rounded up to whole ones as Kubernetes does."""
    return int(quantity_value(quantity).to_integral_value(ROUND_CEILING))


@dataclass(frozen=True)
class QuantityForm:
    """Int-or-string in the schema. ``words`` name the unit; ``least`` is the smallest value."""

    words: str
    pattern: str
    least: int

    def check(self, value: object) -> int | str:
        if isinstance(value, str):
            formed = re.fullmatch(self.pattern, value) is not None
        else:
            formed = isinstance(value, int) and not isinstance(value, bool)
        if not formed or not isinstance(value, int | str):
            raise refusal(f"must be {self.words}")
        if not self.least <= quantity_value(value) <= MAX_QUANTITY:
            raise refusal(f"must be at least {self.least} and less than 2^63")
        return value

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.check)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        # The API server applies the pattern to a text and the minimum to a number.
        return {
            "x-kubernetes-int-or-string": True,
            "pattern": self.pattern,
            "minimum": self.least,
        }


Amount = Annotated[
    int | str,
    QuantityForm("a quantity such as 4, 500m or 16Gi; a fraction goes in quotes", _AMOUNT, 0),
]
MemorySize = Annotated[
    int | str,
    QuantityForm(
        "a number of bytes or a quantity with Ki, Mi, Gi, Ti (powers of 1024) or k, M, G, T "
        "(powers of 1000)",
        _BYTES,
        1,
    ),
]
