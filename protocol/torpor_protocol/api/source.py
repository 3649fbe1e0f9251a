"""Where a model comes from: one URI, whose scheme says which kind of source it is.

A single text keeps "exactly one source" true by construction: no union, no rule over five fields.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from torpor_protocol.api.rules import Rule

Scheme = Literal["hf", "pvc", "oci", "s3", "file"]

_SEGMENT = "[A-Za-z0-9._@+=-]+"
_WORD = "[A-Za-z0-9][A-Za-z0-9._-]*"
_OBJECT = "[a-z0-9]([-a-z0-9.]*[a-z0-9])?"
_IMAGE = r"[a-z0-9][a-z0-9.-]*(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)+"
_TAG = r"(:[A-Za-z0-9_][A-Za-z0-9._-]*)?(@sha256:[0-9a-f]{64})?"

# Scheme -> pattern of the whole URI (group 1 the name, the group called "path" the path below it)
# and its form in words. Patterns hold no single quote: they stand in CEL's r'...' below.
_FORMS: Final[dict[Scheme, tuple[str, str]]] = {
    "hf": (f"^hf://({_WORD}/{_WORD})$", "hf://organisation/name"),
    "pvc": (f"^pvc://({_OBJECT})(?P<path>(/{_SEGMENT})*/?)$", "pvc://claim/path/in/the/volume"),
    "oci": (f"^oci://({_IMAGE}{_TAG})$", "oci://registry.example.com/name:tag"),
    "s3": (f"^s3://({_OBJECT})(?P<path>(/{_SEGMENT})*/?)$", "s3://bucket/path"),
    "file": (r"^file://(?P<path>/[^\x00-\x1f\x7f]+)$", "file:///absolute/path"),
}
_SCHEMES: Final = r"^(hf|pvc|oci|s3|file)://"
_PARENT: Final = r"/\.\.?(/|$)"


@dataclass(frozen=True)
class ModelSource:
    """``name``: organisation/name, claim, image or bucket ("" for a file). ``path``: with the
    leading slash for a file, without one below a claim or bucket; "" where there is none."""

    scheme: Scheme
    name: str
    path: str


def parse_source(uri: str) -> ModelSource:
    """Take a URI apart that ``SOURCE_RULES`` let through; ValueError for any other."""
    scheme = cast(Scheme, uri.partition("://")[0])
    match = re.fullmatch(_FORMS[scheme][0], uri) if scheme in _FORMS else None
    if match is None or re.search(_PARENT, uri):
        raise ValueError(f"{uri[:60]!r} is not a model source")
    path = match.groupdict().get("path") or ""
    if scheme == "file":
        return ModelSource(scheme, "", path)
    return ModelSource(scheme, match.group(1), path.strip("/"))


def _rule(cel: str, must: str, fix: str, pattern: str, when: str = "") -> Rule:
    """The source must match ``pattern``, if it starts with ``when``."""

    def holds(model: Any) -> bool:
        return not model.source.startswith(when) or re.search(pattern, model.source) is not None

    return Rule("source", cel, must, fix, holds)


def _form_rule(scheme: Scheme, pattern: str, words: str) -> Rule:
    pattern = pattern.replace("?P<path>", "")
    cel = f"!self.source.startsWith('{scheme}://') || self.source.matches(r'{pattern}')"
    must = f"must read {words}"
    return _rule(cel, must, f"Write the source as {words}.", pattern, f"{scheme}://")


SOURCE_RULES: Final[tuple[Rule, ...]] = (
    _rule(
        f"self.source.matches(r'{_SCHEMES}')",
        "must be exactly one URI that starts with hf://, pvc://, oci://, s3:// or file://",
        "Name where the model lies, for example file:///models/name.",
        _SCHEMES,
    ),
    *(_form_rule(scheme, pattern, words) for scheme, (pattern, words) in _FORMS.items()),
    Rule(
        "source",
        f"!self.source.matches(r'{_PARENT}')",
        "must not hold . or .. as a part of its path",
        "Write the path without steps upwards.",
        lambda model: re.search(_PARENT, model.source) is None,
    ),
)
