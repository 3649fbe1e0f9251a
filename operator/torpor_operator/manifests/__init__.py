"""Children of a deployment as plain manifests: pure builders, one module per kind.

Every value that the API server would fill in and that we depend on is written out, so that a
live object can be compared with the wanted one (``drift``).
"""

from __future__ import annotations

from torpor_operator.manifests.budget import disruption_budget
from torpor_operator.manifests.drift import differs, labels_held
from torpor_operator.manifests.pods import engine_pod, worker_pod
from torpor_operator.manifests.policies import network_policies
from torpor_operator.manifests.secret import keys_secret
from torpor_operator.manifests.services import services

__all__ = [
    "differs",
    "disruption_budget",
    "engine_pod",
    "keys_secret",
    "labels_held",
    "network_policies",
    "services",
    "worker_pod",
]
