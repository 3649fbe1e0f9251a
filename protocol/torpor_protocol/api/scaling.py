"""``spec.standby`` and ``spec.autoscaling``: how many replicas are awake, and how many asleep."""

from __future__ import annotations

from typing import ClassVar

from torpor_protocol.api.base import ApiModel, setting
from torpor_protocol.api.names import HOUR, MAX_QUEUE, MAX_REPLICAS, MAX_SECONDS
from torpor_protocol.api.rules import Rule, value_or


class StandbySpec(ApiModel):
    """Level 2 is the default: it gives back the most memory that a live process can, needs no host
    memory for a copy of the weights, and frees memory on a CPU as well."""

    min_replicas: int = setting(
        "Sleeping replicas that are kept ready; missing ones are started and put to sleep.",
        unit="replicas",
        default=0,
        example=1,
        ge=0,
        le=MAX_REPLICAS,
    )
    max_replicas: int = setting(
        "Sleeping replicas kept after scaling down; the rest is ended.",
        unit="replicas",
        default=1,
        example=2,
        ge=0,
        le=MAX_REPLICAS,
    )
    level: int = setting(
        "Depth of sleep. 1: weights are copied to host memory and the KV cache is dropped. "
        "2: weights and KV cache are dropped, waking reads the weights again from the source. "
        "3: as 2, and the rank processes end too.",
        unit="level",
        default=2,
        example=1,
        ge=1,
        le=3,
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "minReplicas",
            f"{value_or('minReplicas', 0)} <= {value_or('maxReplicas', 1)}",
            "must not exceed maxReplicas",
            "Lower minReplicas or raise maxReplicas.",
            lambda standby: standby.min_replicas <= standby.max_replicas,
        ),
    )


class AutoscalingSpec(ApiModel):
    min_replicas: int = setting(
        "Awake replicas at least.", unit="replicas", default=0, example=1, ge=0, le=MAX_REPLICAS
    )
    max_replicas: int = setting(
        "Awake replicas at most.", unit="replicas", example=4, ge=1, le=MAX_REPLICAS
    )
    idle_after_seconds: int = setting(
        "Time without a request after which the last replicas go to sleep.",
        unit="seconds",
        default=300,
        example=900,
        ge=1,
        le=MAX_SECONDS,
    )
    target_requests_per_replica: int = setting(
        "Running and waiting requests that one replica should have.",
        unit="requests",
        default=32,
        example=64,
        ge=1,
        le=MAX_QUEUE,
    )
    scale_up_stabilization_seconds: int = setting(
        "How long more load must last before a replica wakes or starts.",
        unit="seconds",
        default=0,
        example=15,
        ge=0,
        le=HOUR,
    )
    scale_down_stabilization_seconds: int = setting(
        "How long less load must last before a replica goes to sleep.",
        unit="seconds",
        default=300,
        example=600,
        ge=0,
        le=HOUR,
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "minReplicas",
            f"{value_or('minReplicas', 0)} <= self.maxReplicas",
            "must not exceed maxReplicas",
            "Lower minReplicas or raise maxReplicas.",
            lambda scaling: scaling.min_replicas <= scaling.max_replicas,
        ),
    )
