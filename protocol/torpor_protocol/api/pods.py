"""What engine and worker pods have in common.

This is an allow-list, not a pod template: whoever may create an InferenceDeployment need
not be allowed to create pods, so no host path and no privilege can be said here at all.
"""

from __future__ import annotations

from typing import Annotated

from torpor_protocol.api.base import ApiModel, setting
from torpor_protocol.api.env import EnvVar
from torpor_protocol.api.forms import (
    ImageReference,
    LabelValue,
    NameMap,
    ObjectName,
    OpaqueObject,
    Unique,
)
from torpor_protocol.api.names import MAX_ITEMS
from torpor_protocol.api.pod_parts import Resources, SecurityContext, Toleration
from torpor_protocol.api.volumes import Volume


class PodSettings(ApiModel):
    """Shared by engine and worker pods."""

    image: ImageReference | None = setting(
        "Container image.",
        unit="image reference",
        default=None,
        shown="the runtime image of the operator's own version",
        example="registry.example.com/torpor/runtime:0.1.0",
    )
    resources: Resources = setting(
        "CPU, memory and other resources of one pod.",
        unit="object",
        factory=Resources,
        example={"requests": {"cpu": "4", "memory": "16Gi"}},
    )
    env: Annotated[list[EnvVar], Unique("name")] = setting(
        "Environment variables, after the operator's own.",
        unit="list of objects",
        factory=list,
        example=[{"name": "NCCL_DEBUG", "value": "INFO"}],
        most=MAX_ITEMS,
    )
    node_selector: NameMap[LabelValue] = setting(
        "Labels that a node must have.",
        unit="map of label to value",
        factory=dict,
        example={"accelerator": "h200"},
        most=MAX_ITEMS,
    )
    tolerations: list[Toleration] = setting(
        "Taints of nodes that the pods tolerate.",
        unit="list of objects",
        factory=list,
        example=[{"key": "nvidia.com/gpu", "operator": "Exists"}],
        most=MAX_ITEMS,
    )
    affinity: OpaqueObject | None = setting(
        "Affinity as in a pod; Kubernetes checks it when the pod is made.",
        unit="object",
        default=None,
        shown="absent",
        example={"nodeAffinity": {}},
    )
    topology_spread_constraints: list[OpaqueObject] = setting(
        "Spreading as in a pod; Kubernetes checks it when the pod is made.",
        unit="list of objects",
        factory=list,
        example=[{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
        most=16,
    )
    priority_class_name: ObjectName | None = setting(
        "PriorityClass of the pods.",
        unit="name",
        default=None,
        shown="the cluster's default",
        example="serving",
    )
    runtime_class_name: ObjectName | None = setting(
        "RuntimeClass of the pods.",
        unit="name",
        default=None,
        shown="the node's default",
        example="nvidia",
    )
    scheduler_name: ObjectName | None = setting(
        "Scheduler of the pods.",
        unit="name",
        default=None,
        shown="the cluster's default scheduler",
        example="volcano",
    )
    service_account_name: ObjectName | None = setting(
        "ServiceAccount of the pods; its token is never mounted.",
        unit="name",
        default=None,
        shown="default",
        example="serving",
    )
    security_context: SecurityContext = setting(
        "User and groups of the processes; everything else is fixed to the restricted profile.",
        unit="object",
        factory=SecurityContext,
        example={"runAsUser": 1000},
    )
    volumes: Annotated[list[Volume], Unique("name")] = setting(
        "Further volumes, mounted in the container.",
        unit="list of objects",
        factory=list,
        example=[{"name": "cache", "mountPath": "/cache", "emptyDir": {}}],
        most=16,
    )
