"""``spec.wake``, ``spec.rollout`` and ``spec.recovery``: how replicas wake and are replaced."""

from __future__ import annotations

from typing import Annotated, ClassVar

from torpor_protocol.api.base import ApiModel, setting
from torpor_protocol.api.forms import Form
from torpor_protocol.api.names import HOUR, MAX_QUEUE, MAX_REPLICAS, MAX_SECONDS
from torpor_protocol.api.rules import Rule, value_or

CanaryPrompt = Annotated[str, Form("a text", "", 1024)]


class CanarySpec(ApiModel):
    enabled: bool = setting(
        "Whether a woken replica must give the tokens of its first start before it takes traffic.",
        unit="true or false",
        default=True,
        example=False,
    )
    prompt: CanaryPrompt = setting(
        "Prompt of the check, continued greedily.",
        unit="text",
        default="The hummingbird sleeps at night",
        example="Once upon a time",
    )
    max_tokens: int = setting(
        "Tokens that are compared.", unit="tokens", default=8, example=16, ge=1, le=64
    )


class WakeSpec(ApiModel):
    on_request: bool = setting(
        "Whether a request to a sleeping deployment is held and wakes a replica.",
        unit="true or false",
        default=True,
        example=False,
    )
    timeout_seconds: int = setting(
        "How long a held request waits for the wake before it is answered with 503.",
        unit="seconds",
        default=300,
        example=60,
        ge=1,
        le=HOUR,
    )
    max_held_requests: int = setting(
        "Requests that are held at most; the next one is answered with 429.",
        unit="requests",
        default=256,
        example=64,
        ge=0,
        le=MAX_QUEUE,
    )
    idle_seconds: int = setting(
        "Time without a request after which a replica that a request woke sleeps again; "
        "0 leaves it awake.",
        unit="seconds",
        default=300,
        example=60,
        ge=0,
        le=MAX_SECONDS,
    )
    canary: CanarySpec = setting(
        "Check of a woken replica.", unit="object", factory=CanarySpec, example={"enabled": True}
    )


class RolloutSpec(ApiModel):
    max_surge: int = setting(
        "Replicas above the wanted number during a rollout. Not used by this version.",
        unit="replicas",
        default=0,
        example=1,
        ge=0,
        le=MAX_REPLICAS,
    )
    max_unavailable: int = setting(
        "Replicas that may be missing during a rollout. Not used by this version, which replaces "
        "one at a time.",
        unit="replicas",
        default=1,
        example=2,
        ge=0,
        le=MAX_REPLICAS,
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "maxUnavailable",
            f"{value_or('maxSurge', 0)} + {value_or('maxUnavailable', 1)} > 0",
            "must not be 0 while maxSurge is 0, because a rollout could never begin",
            "Raise maxUnavailable or maxSurge to 1.",
            lambda rollout: rollout.max_surge + rollout.max_unavailable > 0,
        ),
    )


class RecoverySpec(ApiModel):
    max_restarts: int = setting(
        "Losses of a replica's group within the window before it is given up; "
        "0 gives up at the first.",
        unit="restarts",
        default=10,
        example=3,
        ge=0,
        le=MAX_QUEUE,
    )
    window_seconds: int = setting(
        "Length of the sliding window in which losses count.",
        unit="seconds",
        default=600,
        example=1800,
        ge=1,
        le=MAX_SECONDS,
    )
    backoff_seconds: int = setting(
        "Wait before the second attempt in a row; it doubles with each further one.",
        unit="seconds",
        default=1,
        example=5,
        ge=0,
        le=HOUR,
    )
