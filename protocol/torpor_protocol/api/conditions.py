"""Conditions of a deployment: what holds, what does not, and why.

Reasons are a closed list in Python. The schema only asks for CamelCase, so that an operator that
knows a new reason can write it before the CRD has been upgraded.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import WithJsonSchema

from torpor_protocol.api.base import ApiModel, setting
from torpor_protocol.api.forms import Form
from torpor_protocol.api.names import MAX_TEXT

ConditionType = Literal[
    "Ready",
    "SpecValid",
    "ResourcesCreated",
    "WorkersReady",
    "ModelLoaded",
    "EngineReady",
    "Asleep",
    "Progressing",
    "Degraded",
]
Reason = Annotated[
    Literal[
        # All is well, or under way.
        "Ready",
        "Asleep",
        "Awake",
        "Valid",
        "Created",
        "Loaded",
        "Complete",
        "Waiting",
        "Starting",
        "WeightsLoading",
        "GroupForming",
        "Draining",
        "Sleeping",
        "Waking",
        "RollingOut",
        # Why not.
        "InvalidSpec",
        "InsufficientGPU",
        "Unschedulable",
        "QuotaExceeded",
        "ImagePullFailed",
        "VolumeNotFound",
        "ModelNotFound",
        "ModelAccessDenied",
        "ModelUnsupported",
        "WeightsCorrupt",
        "KVCacheDoesNotFit",
        "OutOfMemory",
        "RankLost",
        "RankFailed",
        "PodLost",
        "EngineStalled",
        "WakeFailed",
        "SleepFailed",
        "CrashLoop",
        "NameTaken",
        "ProgressDeadlineExceeded",
    ],
    WithJsonSchema({"type": "string", "pattern": "^[A-Z][A-Za-z0-9]*$", "maxLength": 64}),
]
Timestamp = Annotated[
    str,
    Form(
        "a time in RFC 3339 form",
        r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?Z$",
        30,
    ),
]
Message = Annotated[str, Form("a text", "", MAX_TEXT, shortest=0)]


class Condition(ApiModel):
    type: ConditionType = setting("What the condition is about.", unit="name", example="Ready")
    status: Literal["True", "False", "Unknown"] = setting(
        "Whether it holds.", unit="one of the names", example="True"
    )
    reason: Reason = setting("Why, in one word.", unit="CamelCase word", example="WeightsLoading")
    message: Message = setting(
        "Why, for a person.", unit="text", default="", shown="empty", example="2 of 3 ranks loaded"
    )
    last_transition_time: Timestamp = setting(
        "When status last changed.", unit="RFC 3339 time", example="2026-01-31T12:00:00Z"
    )
    observed_generation: int | None = setting(
        "Generation of the resource that this is about.",
        unit="number",
        default=None,
        shown="absent",
        example=3,
        ge=0,
    )
