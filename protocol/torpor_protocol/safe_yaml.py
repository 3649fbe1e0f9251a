"""YAML from a stranger: bounded in size, depth and expansion, dates stay texts."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import yaml

from torpor_protocol.words import printable, shorten
from torpor_protocol.yaml_scan import Scan, YamlRefused

MAX_BYTES: Final = 2**20
# A date and a lone "=" are texts here, as everywhere else where a manifest is read.
_UNKNOWN: Final = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value")
_BASE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_BASE):  # type: ignore[misc]  # the C loader where PyYAML has it
    yaml_implicit_resolvers: ClassVar[Any] = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in _UNKNOWN]
        for first, resolvers in _BASE.yaml_implicit_resolvers.items()
    }


def read_documents(data: bytes) -> list[object]:
    """The documents of a file that are not empty. YamlRefused says what is wrong with it."""
    if len(data) > MAX_BYTES:
        raise YamlRefused(
            f"is larger than {MAX_BYTES // 2**20} MiB",
            "Give a manifest with one InferenceDeployment.",
        )
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise YamlRefused(
            f"is not text in UTF-8: byte {error.start} is wrong",
            "Give a YAML file, not a binary one.",
        ) from error
    try:
        scan = Scan()
        for event in yaml.parse(text, Loader=_Loader):
            scan.take(event)
        documents = [each for each in yaml.load_all(text, _Loader) if each is not None]
    except yaml.YAMLError as error:
        raise YamlRefused(_describe(error), "Correct the YAML there.") from error
    except (ValueError, OverflowError, RecursionError) as error:
        raise YamlRefused(
            "holds a number that cannot be read", "Write a smaller number, or put it in quotes."
        ) from error
    for document in documents:
        _refuse_odd_values(document)
    return documents


def _refuse_odd_values(value: object) -> None:
    """What YAML knows and JSON does not: keys that are no texts, and boundless numbers."""
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_odd_values(key)
            if not isinstance(key, str):
                raise YamlRefused(
                    f"has the key {shorten(key)}, which YAML does not read as a text",
                    "Put the key in quotes.",
                )
            _refuse_odd_values(item)
    elif isinstance(value, list):
        for item in value:
            _refuse_odd_values(item)
    elif isinstance(value, int | float) and not -(2**63) <= value < 2**63:
        raise YamlRefused(
            "holds a number that is not finite or beyond 64 bits",
            "Write a smaller number, or put it in quotes.",
        )


def _describe(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = str(getattr(error, "problem", None) or "it holds a character that YAML forbids")
    place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    return f"is not valid YAML{place}: {printable(' '.join(problem.split()))[:120]}"
