"""The PodDisruptionBudget: a drained node takes at most one serving engine at a time.

Workers are not in it: losing one pauses its replica, and losing several of a replica at once
pauses it no longer. ``minAvailable`` is a number because ``maxUnavailable`` would be counted from
the scale subresource, which counts replicas and not pods.
"""

from __future__ import annotations

from torpor_operator import names
from torpor_operator.deployment import Deployment
from torpor_operator.manifests.common import child, pods_of
from torpor_operator.model import Manifest


def disruption_budget(deployment: Deployment) -> Manifest:
    spec = {
        # A single one may go: a budget that forbids it would block the drain of its node for ever.
        "minAvailable": max(deployment.wanted - 1, 0),
        "selector": pods_of(deployment, names.ENGINE),
        # Engines that sleep and are not on call are not ready; they hold up nobody.
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    name = names.disruption_budget(deployment.name)
    return child(deployment, "policy/v1", "PodDisruptionBudget", name, {}) | {"spec": spec}
