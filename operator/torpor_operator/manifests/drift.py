"""Whether a live object still is what is wanted, without writing anything.

The API server adds fields and others may own some; only what we set is compared. Parts that
server-side apply replaces as a whole (selectors, rules) must be equal, or an added label could
empty a policy; parts that it merges (labels, owners, ports of a Service) must hold ours.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from torpor_operator.model import Manifest


def differs(live: Manifest, wanted: Manifest) -> bool:
    """For Services, NetworkPolicies and PodDisruptionBudgets."""
    return not (
        _metadata_held(live["metadata"], wanted["metadata"])
        and _spec_held(live.get("spec") or {}, wanted["spec"], wanted["kind"])
    )


def labels_held(live: Manifest, wanted: Manifest) -> bool:
    return _within(wanted["metadata"]["labels"], live["metadata"].get("labels") or {})


def secret_held(live: Manifest, wanted: Manifest) -> bool:
    """Keys that others have added do not matter."""
    return _metadata_held(live["metadata"], wanted["metadata"]) and _within(
        wanted.get("data") or {}, live.get("data") or {}
    )


def fingerprint(manifest: Manifest) -> str:
    """Of a whole manifest, so that an equal one need not be applied again."""
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


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
