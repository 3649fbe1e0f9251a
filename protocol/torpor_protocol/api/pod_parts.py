"""Resources, tolerations and user ids: the small parts of a pod that a deployment may set."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from torpor_protocol.api.base import ApiModel, setting
from torpor_protocol.api.forms import LabelValue, NameMap, QualifiedName
from torpor_protocol.api.names import MAX_KUBERNETES_INT, MAX_SECONDS
from torpor_protocol.api.quantity import Amount, quantity_value
from torpor_protocol.api.rules import Rule

# cpu, memory, ephemeral-storage, huge pages, a network device, one more. With more than seven the
# API server refuses the CRD, because comparing the quantities might cost too much.
_MAX_RESOURCES = 6
_WITHIN = (
    "!has(self.requests) || !has(self.limits) || self.requests.all(name, !(name in self.limits) || "
    "quantity(string(self.requests[name])).compareTo(quantity(string(self.limits[name]))) <= 0)"
)


def _within_limits(resources: Resources) -> bool:
    limits = resources.limits
    return all(
        name not in limits or quantity_value(amount) <= quantity_value(limits[name])
        for name, amount in resources.requests.items()
    )


class Resources(ApiModel):
    requests: NameMap[Amount] = setting(
        "What the scheduler sets aside for a pod.",
        unit="map of resource name to quantity",
        factory=dict,
        example={"cpu": "4", "memory": "16Gi"},
        most=_MAX_RESOURCES,
    )
    limits: NameMap[Amount] = setting(
        "What a pod may use at most. The accelerator is not named here: the operator sets it.",
        unit="map of resource name to quantity",
        factory=dict,
        example={"memory": "16Gi"},
        most=_MAX_RESOURCES,
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "requests",
            _WITHIN,
            "must not exceed limits of the same name",
            "Lower the request or raise the limit.",
            _within_limits,
        ),
    )


class Toleration(ApiModel):
    key: QualifiedName | None = setting(
        "Taint that is tolerated.",
        unit="name",
        default=None,
        shown="every taint, with operator Exists",
        example="nvidia.com/gpu",
    )
    operator: Literal["Equal", "Exists"] = setting(
        "Whether the value counts.", unit="one of the names", default="Equal", example="Exists"
    )
    value: LabelValue | None = setting(
        "Value of the taint, with operator Equal.",
        unit="text",
        default=None,
        shown="an empty text",
        example="present",
    )
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = setting(
        "Effect that is tolerated.",
        unit="one of the names",
        default=None,
        shown="every effect",
        example="NoSchedule",
    )
    toleration_seconds: int | None = setting(
        "How long a pod stays on a node with a NoExecute taint.",
        unit="seconds",
        default=None,
        shown="for ever",
        example=60,
        ge=0,
        le=MAX_SECONDS,
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "value",
            "!(has(self.operator) && self.operator == 'Exists') || !has(self.value)",
            "must be absent with operator Exists",
            "Remove value, or use operator Equal.",
            lambda toleration: toleration.operator == "Equal" or toleration.value is None,
        ),
        Rule(
            "key",
            "has(self.key) || (has(self.operator) && self.operator == 'Exists')",
            "must be set with operator Equal",
            "Name the taint, or use operator Exists.",
            lambda toleration: toleration.operator == "Exists" or toleration.key is not None,
        ),
    )


GroupId = Annotated[int, Field(ge=0, le=MAX_KUBERNETES_INT)]


class SecurityContext(ApiModel):
    """Ids only: privileges, capabilities and the read-only root are fixed by the operator."""

    run_as_user: int | None = setting(
        "User id of the processes; never root.",
        unit="id",
        default=None,
        shown="the user of the image",
        example=1000,
        ge=1,
        le=MAX_KUBERNETES_INT,
    )
    run_as_group: int | None = setting(
        "Group id of the processes.",
        unit="id",
        default=None,
        shown="the group of the image",
        example=1000,
        ge=0,
        le=MAX_KUBERNETES_INT,
    )
    fs_group: int | None = setting(
        "Group that owns the files of mounted volumes.",
        unit="id",
        default=None,
        shown="the volumes as they are",
        example=1000,
        ge=0,
        le=MAX_KUBERNETES_INT,
    )
    supplemental_groups: list[GroupId] = setting(
        "Further groups of the processes.",
        unit="list of ids",
        factory=list,
        example=[2000],
        most=16,
    )
