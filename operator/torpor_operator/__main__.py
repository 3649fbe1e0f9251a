"""``python -m torpor_operator``: the operator's process."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import sys
import time
from typing import Final

import kopf

from torpor_operator.app import Operator
from torpor_operator.cluster import KubernetesLease, connect
from torpor_operator.handlers import informer, informer_settings
from torpor_operator.json_logs import start_json_logging
from torpor_operator.lease import LEASE_NAME, LeaseGuard
from torpor_operator.metrics import Metrics, serve_metrics
from torpor_operator.settings import Settings, read_settings
from torpor_protocol.errors import TorporError

HEALTH_PORT: Final = 8080
METRICS_PORT: Final = 8081

logger = logging.getLogger("torpor_operator")


def main() -> int:
    """The exit code: 0 when it was told to stop."""
    # kopf asks for the user's name, and an arbitrary user of an image has none.
    os.environ.setdefault("LOGNAME", "torpor-operator")
    try:
        start_json_logging()
        asyncio.run(_run(read_settings(os.environ)))
    except TorporError as error:
        logger.error("%s", error)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


async def _run(settings: Settings) -> None:
    metrics = Metrics()
    cluster = await connect(metrics)
    try:
        lease = KubernetesLease(cluster, settings.namespace, LEASE_NAME)
        guard = LeaseGuard(lease, _identity(), clock=time.monotonic)
        server = await serve_metrics(metrics, _any_address(), METRICS_PORT)
        try:
            await _serve(settings, Operator(settings, cluster, guard, metrics))
        finally:
            await server.cleanup()
    finally:
        await cluster.close()


async def _serve(settings: Settings, operator: Operator) -> None:
    try:
        await operator.start()
        await kopf.operator(
            registry=informer(operator),
            settings=informer_settings(),
            standalone=True,
            clusterwide=settings.cluster_wide,
            namespaces=settings.namespaces,
            liveness_endpoint=_health_url(),
            stop_flag=operator.stop,
        )
    finally:
        await operator.end()
    if operator.failure is not None:
        raise operator.failure


def _identity() -> str:
    """Of the pod: a container that is started again in it goes on with its Lease at once."""
    pod, uid = os.environ.get("TORPOR_POD_NAME", ""), os.environ.get("TORPOR_POD_UID", "")
    return f"{pod or socket.gethostname()}/{uid or secrets.token_hex(8)}"


def _health_url() -> str:
    host = _any_address()
    return f"http://{f'[{host}]' if ':' in host else host}:{HEALTH_PORT}/healthz"


def _any_address() -> str:
    """Of the pod's address family: asyncio binds ``::`` for IPv6 alone."""
    return "::" if ":" in os.environ.get("TORPOR_POD_IP", "") else "0.0.0.0"


if __name__ == "__main__":
    sys.exit(main())
