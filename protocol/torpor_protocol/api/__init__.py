"""The custom resource ``inferencedeployments.torpor.dev/v1alpha1`` as pydantic models.

One source for the CRD, for ``torpor serve FILE`` and for the operator: field names, defaults,
ranges, rules and descriptions are written here and nowhere else. Other rooms import from this
package, not from its modules.
"""

from __future__ import annotations

from torpor_protocol.api.base import ApiModel
from torpor_protocol.api.conditions import Condition, ConditionType, Reason
from torpor_protocol.api.env import EnvSource, EnvVar, KeyRef
from torpor_protocol.api.lifecycle import CanarySpec, RecoverySpec, RolloutSpec, WakeSpec
from torpor_protocol.api.model import ModelSpec, SecretKeyRef
from torpor_protocol.api.names import (
    API_VERSION,
    CATEGORIES,
    GROUP,
    KIND,
    MAX_DERIVED_NAME,
    MAX_NAME,
    MAX_REPLICAS,
    MAX_WORLD_SIZE,
    PLURAL,
    SHORT_NAMES,
    SINGULAR,
    VERSION,
)
from torpor_protocol.api.pod_parts import Resources, SecurityContext, Toleration
from torpor_protocol.api.pods import PodSettings
from torpor_protocol.api.quantity import parse_quantity, quantity_value
from torpor_protocol.api.resource import InferenceDeployment, ObjectMeta
from torpor_protocol.api.roles import EngineSpec, WorkerSpec
from torpor_protocol.api.rules import Rule
from torpor_protocol.api.scaling import AutoscalingSpec, StandbySpec
from torpor_protocol.api.source import ModelSource, Scheme, parse_source
from torpor_protocol.api.spec import InferenceDeploymentSpec, ParallelismSpec
from torpor_protocol.api.status import (
    InferenceDeploymentStatus,
    LoadProgress,
    ReplicaState,
    ReplicaStatus,
)
from torpor_protocol.api.volumes import (
    ClaimSource,
    ConfigMapSource,
    EmptyDir,
    SecretSource,
    Volume,
)

__all__ = [
    "API_VERSION",
    "CATEGORIES",
    "GROUP",
    "KIND",
    "MAX_DERIVED_NAME",
    "MAX_NAME",
    "MAX_REPLICAS",
    "MAX_WORLD_SIZE",
    "PLURAL",
    "SHORT_NAMES",
    "SINGULAR",
    "VERSION",
    "ApiModel",
    "AutoscalingSpec",
    "CanarySpec",
    "ClaimSource",
    "Condition",
    "ConditionType",
    "ConfigMapSource",
    "EmptyDir",
    "EngineSpec",
    "EnvSource",
    "EnvVar",
    "InferenceDeployment",
    "InferenceDeploymentSpec",
    "InferenceDeploymentStatus",
    "KeyRef",
    "LoadProgress",
    "ModelSource",
    "ModelSpec",
    "ObjectMeta",
    "ParallelismSpec",
    "PodSettings",
    "Reason",
    "RecoverySpec",
    "ReplicaState",
    "ReplicaStatus",
    "Resources",
    "RolloutSpec",
    "Rule",
    "Scheme",
    "SecretKeyRef",
    "SecretSource",
    "SecurityContext",
    "StandbySpec",
    "Toleration",
    "Volume",
    "WakeSpec",
    "WorkerSpec",
    "parse_quantity",
    "parse_source",
    "quantity_value",
]
