"""Services, policies, budget and Secret: what is missing or has drifted is applied again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torpor_operator import manifests
from torpor_operator.deployment import Deployment
from torpor_operator.model import Manifest, Observed, child_key
from torpor_operator.replica_view import Replica
from torpor_operator.replicas import Roles
from torpor_operator.settings import Settings


@dataclass(frozen=True)
class ChildrenPlan:
    """``taken``: "Kind/name" of wanted children that belong to somebody else."""

    apply: tuple[Manifest, ...] = ()
    taken: tuple[str, ...] = ()


def plan_children(
    deployment: Deployment,
    observed: Observed,
    replicas: Mapping[int, Replica],
    roles: Roles,
    settings: Settings,
) -> ChildrenPlan:
    """The Secret comes first, for pods cannot start without it."""
    live = {child_key(child.kind, child.name): child for child in observed.children}
    # Pods that are ending still hold theirs.
    keyed = {*roles.members, *replicas}
    wanted = [
        manifests.keys_secret(deployment, keyed, settings),
        *manifests.network_policies(deployment, settings.namespace),
        *manifests.services(deployment),
        manifests.disruption_budget(deployment),
    ]
    apply, taken = [], []
    for manifest in wanted:
        key = child_key(manifest["kind"], manifest["metadata"]["name"])
        child = live.get(key)
        if key in observed.taken or (child is not None and not child.owned):
            taken.append(key)
        elif child is None or manifests.differs(child.manifest, manifest):
            apply.append(manifest)
    return ChildrenPlan(tuple(apply), tuple(taken))
