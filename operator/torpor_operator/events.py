"""Kubernetes Events about a deployment: what ``kubectl describe`` shows at its end."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Final

from torpor_operator.model import Event, Manifest
from torpor_operator.names import OPERATOR
from torpor_protocol.api.names import API_VERSION, KIND

_LONGEST_MESSAGE: Final = 1024  # bytes that the API server takes


def event_object(resource: Manifest, event: Event, now: float) -> Manifest:
    """``now`` in unix seconds. Its name is new for each occurrence."""
    metadata = resource["metadata"]
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    told = f"{metadata['uid']}/{event.reason}/{event.message}/{now!r}"
    name = f"{metadata['name']}.{hashlib.sha256(told.encode()).hexdigest()[:16]}"
    message = event.message.encode()[:_LONGEST_MESSAGE].decode(errors="ignore")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": metadata["namespace"]},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "resourceVersion": metadata.get("resourceVersion", ""),
        },
        "type": event.type,
        "reason": event.reason,
        "message": message,
        "source": {"component": OPERATOR},
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
