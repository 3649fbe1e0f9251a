"""The informer: kopf watches, and every event puts the key of a deployment into the work queue.

kopf is used for nothing else: no changing handlers, timers or daemons, hence no annotation, no
finalizer and no patch of its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

import kopf

from torpor_operator.app import Operator
from torpor_operator.names import LABEL_DEPLOYMENT, LABEL_MANAGED_BY, OPERATOR
from torpor_operator.workqueue import Key
from torpor_protocol.api.names import GROUP, PLURAL, VERSION

# A reconciliation ends within a minute. One that is due for longer means that the loop hangs.
LONGEST_DUE: Final = 180.0  # seconds
# Secrets are missing: the operator has no right to read any.
CHILDREN: Final = (
    ("", "v1", "pods"),
    ("", "v1", "services"),
    ("networking.k8s.io", "v1", "networkpolicies"),
    ("policy", "v1", "poddisruptionbudgets"),
)


def informer_settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True  # the Lease guards
    settings.posting.enabled = False  # events are written by us, once per transition
    # The definition is there before the operator is, and nothing else of the cluster matters: so
    # no right to watch definitions and namespaces is needed.
    settings.scanning.disabled = True
    settings.networking.request_timeout = 30.0
    settings.networking.error_backoffs = (1, 2, 5, 10)
    settings.queueing.error_delays = (1, 2, 5, 10, 30, 60)
    settings.execution.default_backoff = 10.0
    for child in CHILDREN:
        settings.watching.label_selectors[child] = f"{LABEL_MANAGED_BY}={OPERATOR}"
    return settings


def informer(operator: Operator) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()
    _add_process(registry, operator)

    @kopf.on.event(GROUP, VERSION, PLURAL, id="deployment", registry=registry)
    async def deployment_changed(namespace: str | None, name: str | None, **_: Any) -> None:
        operator.queue.add(Key(str(namespace), str(name)))

    async def child_changed(namespace: str | None, labels: Mapping[str, str], **_: Any) -> None:
        owner = owner_key(namespace, labels)
        if owner is not None:
            operator.queue.add(owner)

    for child in CHILDREN:
        kopf.on.event(*child, id=child[-1], registry=registry)(child_changed)
    return registry


def owner_key(namespace: str | None, labels: Mapping[str, str]) -> Key | None:
    """Of the deployment that a child belongs to by its labels."""
    name = labels.get(LABEL_DEPLOYMENT, "")
    return Key(namespace, name) if namespace and name else None


def check_age(oldest: float) -> float:
    """Any exception but kopf's permanent one would be retried, and the probe hang."""
    if oldest > LONGEST_DUE:
        raise kopf.PermanentError(f"A deployment has been due for {oldest:.0f} s.")
    return round(oldest, 1)


def _add_process(registry: kopf.OperatorRegistry, operator: Operator) -> None:
    @kopf.on.login(id="login", registry=registry)
    async def login(settings: kopf.OperatorSettings, **_: Any) -> kopf.ConnectionInfo | None:
        """In the order of ``cluster.connect``. kopf's own way would import the whole client."""
        inside = "KUBERNETES_SERVICE_HOST" in os.environ and not os.environ.get("KUBECONFIG")
        if inside:
            return kopf.login_with_service_account(settings=settings)
        return kopf.login_with_kubeconfig(settings=settings)

    @kopf.on.cleanup(id="end", registry=registry)
    async def clean_up(**_: Any) -> None:
        await operator.end()

    @kopf.on.probe(id="oldest_due_seconds", registry=registry)
    async def probe(**_: Any) -> float:
        return check_age(operator.queue.oldest())
