"""Whether a live object still is what is wanted, without writing anything.

The API server adds fields and others may own some; only what we set is compared. Parts that
server-side apply replaces as a whole (selectors, rules) must be equal, or an added label could
empty a policy; parts that it merges (labels, owners, ports of a Service) must hold ours.
"""

from __future__ import annotations

from typing import Any

from torpor_operator.model import Manifest


def differs(live: Manifest, wanted: Manifest) -> bool:
    """For everything but pods."""
    if not _metadata_held(live["metadata"], wanted["metadata"]):
        return True
    if wanted["kind"] == "Secret":
        return bool(live.get("data") != wanted["data"])
    return not _spec_held(live.get("spec") or {}, wanted["spec"], wanted["kind"])


def labels_held(live: Manifest, wanted: Manifest) -> bool:
    return _within(wanted["metadata"]["labels"], live["metadata"].get("labels") or {})


def _metadata_held(live: Manifest, wanted: Manifest) -> bool:
    return _within(wanted["labels"], live.get("labels") or {}) and _all_among(
        wanted["ownerReferences"], live.get("ownerReferences") or []
    )


def _spec_held(live: Manifest, wanted: Manifest, kind: str) -> bool:
    for name, value in wanted.items():
        if kind == "Service" and name == "ports":
            if not _all_among(value, live.get(name) or []):
                return False
        elif live.get(name) != value:
            return False
    return True


def _within(wanted: Manifest, live: Manifest) -> bool:
    return all(name in live and live[name] == value for name, value in wanted.items())


def _all_among(wanted: list[Any], live: list[Any]) -> bool:
    return all(any(_within(item, other) for other in live) for item in wanted)
