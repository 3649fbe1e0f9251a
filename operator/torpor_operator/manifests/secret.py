"""The Secret with the keys of all replicas that exist or are wanted."""

from __future__ import annotations

from collections.abc import Iterable

from torpor_operator import names
from torpor_operator.deployment import Deployment
from torpor_operator.keys import secret_data
from torpor_operator.manifests.common import child
from torpor_operator.model import Manifest
from torpor_operator.settings import Settings


def keys_secret(deployment: Deployment, replicas: Iterable[int], settings: Settings) -> Manifest:
    data = secret_data(settings.master_key, deployment.uid, replicas, deployment.workers)
    name = names.keys_secret(deployment.name)
    return child(deployment, "v1", "Secret", name, {}) | {"type": "Opaque", "data": data}
