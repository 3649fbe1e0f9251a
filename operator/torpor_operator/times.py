"""Times of conditions: when they changed, and whether progress has been waited for too long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from torpor_operator.conditions import Verdict
from torpor_operator.model import Manifest
from torpor_operator.pods import unix_seconds


def timestamp(now: float) -> str:
    """Unix seconds in RFC 3339 form, whole seconds as Kubernetes writes them."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(
    kind: str,
    status: str,
    verdict: Verdict,
    before: Mapping[str, Any] | None,
    generation: int,
    now: float,
) -> Manifest:
    """``before``: the condition of the last status; its time stays while the status does."""
    same = before is not None and before.get("status") == status
    since = before["lastTransitionTime"] if before is not None and same else timestamp(now)
    return {
        "type": kind,
        "status": status,
        "reason": verdict.reason,
        "message": verdict.message,
        "lastTransitionTime": since,
        "observedGeneration": generation,
    }


def newest_transition(conditions: Iterable[Mapping[str, Any]]) -> float:
    """Unix seconds; 0.0 where there is none."""
    return max((unix_seconds(each.get("lastTransitionTime")) for each in conditions), default=0.0)
