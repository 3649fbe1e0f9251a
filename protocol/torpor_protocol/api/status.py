"""``status``: what the operator has seen. Written by it alone."""

from __future__ import annotations

from typing import Annotated, Literal

from torpor_protocol.api.base import ApiModel, setting
from torpor_protocol.api.conditions import Condition, Reason
from torpor_protocol.api.forms import Form, Unique
from torpor_protocol.api.names import MAX_ITEMS

ReplicaState = Literal[
    "Pending", "Forming", "Loading", "Awake", "Draining", "Sleeping", "Asleep", "Waking", "Failed"
]
ShortText = Annotated[str, Form("a text", "", 1024, shortest=0)]


class LoadProgress(ApiModel):
    """Of the replica that is the furthest behind."""

    phase: Literal["Pulling", "Forming", "Loading", "Profiling", "WarmingUp", "Done"] = setting(
        "What is being done.", unit="one of the names", example="Loading"
    )
    percent: int = setting("Part of the bytes.", unit="per cent", example=40, ge=0, le=100)
    loaded_bytes: int = setting("Bytes read.", unit="bytes", default=0, example=104857600, ge=0)
    total_bytes: int = setting(
        "Bytes of the weights.", unit="bytes", default=0, example=269060552, ge=0
    )
    eta_seconds: int | None = setting(
        "Time that is left.", unit="seconds", default=None, shown="unknown", example=12, ge=0
    )


class ReplicaStatus(ApiModel):
    index: int = setting("Index of the replica.", unit="number", example=0, ge=0)
    revision: ShortText = setting("Revision of its pods.", unit="hash", example="7c9d5f6b4")
    state: ReplicaState = setting("State.", unit="one of the names", example="Awake")
    restarts: int = setting("Groups lost so far.", unit="restarts", default=0, example=1, ge=0)
    group_id: ShortText = setting(
        "Id of the present group.",
        unit="hex digits",
        default="",
        shown="empty, no group",
        example="4f" * 16,
    )
    reason: Reason | None = setting(
        "Why it is in this state.",
        unit="CamelCase word",
        default=None,
        shown="absent",
        example="RankLost",
    )
    message: ShortText = setting(
        "Why, for a person.", unit="text", default="", shown="empty", example="rank 1 was killed"
    )


def _count(text: str, example: int) -> int:
    count: int = setting(text, unit="replicas", default=0, example=example, ge=0)
    return count


class InferenceDeploymentStatus(ApiModel):
    observed_generation: int | None = setting(
        "Generation of the resource that the status is about.",
        unit="number",
        default=None,
        shown="absent",
        example=3,
        ge=0,
    )
    conditions: Annotated[list[Condition], Unique("type")] = setting(
        "What holds and what does not, and why.",
        unit="list of objects",
        factory=list,
        example=[
            {
                "type": "Ready",
                "status": "True",
                "reason": "Asleep",
                "lastTransitionTime": "2026-01-31T12:00:00Z",
            }
        ],
        most=16,
    )
    replicas: int = _count("Awake replicas, for the scale subresource.", 1)
    ready_replicas: int = _count("Awake replicas that take requests.", 1)
    updated_replicas: int = _count("Replicas of the update revision.", 1)
    sleeping_replicas: int = _count("Replicas that are asleep.", 1)
    desired_replicas: int = _count("Awake replicas that are wanted now.", 1)
    selector: ShortText = setting(
        "Labels of the engine pods, for the scale subresource.",
        unit="label selector",
        default="",
        shown="empty",
        example="torpor.dev/deployment=demo,torpor.dev/role=engine",
    )
    url: ShortText = setting(
        "Address of the client Service.",
        unit="URL",
        default="",
        shown="empty until it exists",
        example="http://demo.default.svc:8000",
    )
    model_name: ShortText = setting(
        "First served name.", unit="name", default="", shown="empty", example="smollm2"
    )
    load_progress: LoadProgress | None = setting(
        "How far loading is.",
        unit="object",
        default=None,
        shown="absent, nothing is loading",
        example={"phase": "Loading", "percent": 40},
    )
    current_revision: ShortText = setting(
        "Revision that served last.", unit="hash", default="", shown="empty", example="7c9d5f6b4"
    )
    update_revision: ShortText = setting(
        "Revision that is wanted.", unit="hash", default="", shown="empty", example="7c9d5f6b4"
    )
    replica_statuses: Annotated[list[ReplicaStatus], Unique("index")] = setting(
        f"One entry per replica, the first {MAX_ITEMS} of them.",
        unit="list of objects",
        factory=list,
        example=[{"index": 0, "revision": "7c9d5f6b4", "state": "Awake"}],
        most=MAX_ITEMS,
    )
