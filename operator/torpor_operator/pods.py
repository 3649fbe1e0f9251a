"""A pod object as the operator sees it, with the one thing that is wrong with it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, get_args

from torpor_operator import names
from torpor_operator.model import Manifest, Phase, PodView
from torpor_operator.pod_troubles import OOM_KILLED, Trouble, role_of, trouble_of

_ENGINE_INDEX = -1
_NOBODYS = -1


def view_pod(pod: Manifest, warning: tuple[str, str] | None = None) -> PodView:
    """``warning``: reason and message of the newest Warning event about the pod, if the caller
    has it: a volume that cannot be mounted is told nowhere else.

    A pod with labels that make no sense gets replica -1, which nobody wants."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    labels = metadata.get("labels") or {}
    role = role_of(pod)
    container = container_status(pod, role)
    deleting = metadata.get("deletionTimestamp") is not None
    found = Trouble() if deleting else trouble_of(pod, container, warning)
    phase = status.get("phase", "Pending")
    ended = _last_end(container)
    return PodView(
        name=metadata["name"],
        uid=metadata["uid"],
        role=role,
        replica=_index(labels.get(names.LABEL_REPLICA)) if _has_role(labels) else _NOBODYS,
        worker=_index(labels.get(names.LABEL_WORKER)) if role == names.WORKER else _ENGINE_INDEX,
        revision=labels.get(names.LABEL_REVISION, ""),
        phase=phase if phase in get_args(Phase) else "Unknown",
        ready=not deleting and _is_ready(status, container),
        deleting=deleting,
        node=(pod.get("spec") or {}).get("nodeName") or "",
        ip=status.get("podIP") or "",
        reason=found.reason,
        message=found.message,
        restarts=container.get("restartCount", 0),
        exit_code=ended.get("exitCode", -1),
        out_of_memory=ended.get("reason") == OOM_KILLED,
        created_at=unix_seconds(metadata.get("creationTimestamp")),
        started_at=unix_seconds(
            ((container.get("state") or {}).get("running") or {}).get("startedAt")
        ),
        ends_at=unix_seconds(metadata.get("deletionTimestamp")),
    )


def _is_ready(status: Manifest, container: Manifest) -> bool:
    """A node that is lost makes its pods not ready, and cannot write what its containers are."""
    conditions = status.get("conditions") or []
    lost = any(each["type"] == "Ready" and each["status"] != "True" for each in conditions)
    return bool(container.get("ready")) and not lost


def container_status(pod: Manifest, name: str) -> dict[str, Any]:
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    return next((status for status in statuses if status.get("name") == name), {})


def unix_seconds(timestamp: str | None) -> float:
    """Of a time in RFC 3339 form; 0.0 for none."""
    return datetime.fromisoformat(timestamp).timestamp() if timestamp else 0.0


def _last_end(container: dict[str, Any]) -> dict[str, Any]:
    """The container's newest termination, which it may have recovered from."""
    for state in (container.get("state"), container.get("lastState")):
        if state and state.get("terminated"):
            return dict(state["terminated"])
    return {}


def _has_role(labels: dict[str, str]) -> bool:
    return labels.get(names.LABEL_ROLE) in (names.ENGINE, names.WORKER)


def _index(label: str | None) -> int:
    return int(label) if label and label.isdecimal() and label.isascii() else _NOBODYS
