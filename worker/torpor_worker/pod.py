"""``python -m torpor_worker pod``: the supervisor as the first process of a worker pod.

Its settings come from the environment and the pod's key file instead of a parent's pipe. Nobody is
its parent: what ends it is SIGTERM, or its container.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from torpor_protocol.pods import WorkerPod, read_worker_keys, read_worker_pod
from torpor_protocol.rpc import RankKeys
from torpor_protocol.supervision import DEFAULT_PRELOAD, SupervisorSettings
from torpor_worker.interfaces import interface_of
from torpor_worker.supervisor import Supervisor

log = logging.getLogger(__name__)


def run_pod(environ: Mapping[str, str]) -> int:
    """Until SIGTERM, or the engine says Shutdown. Raises ConfigError."""
    pod = read_worker_pod(environ)
    settings = pod_settings(pod, read_worker_keys(Path(pod.place.keys)))
    log.info(
        "Worker pod %s, up to %d ranks on %s, engine %s.",
        settings.pod_name,
        settings.devices,
        settings.interface or "any interface",
        settings.endpoint,
    )
    # A supervisor watches its parent by a pipe. This one's never ends: it holds the writing end.
    parent, _held = os.pipe()
    Supervisor(settings, parent).run()
    return 0


def pod_settings(pod: WorkerPod, keys: RankKeys) -> SupervisorSettings:
    return SupervisorSettings(
        endpoint=pod.engine,
        identity=pod.place.name,
        devices=pod.devices,
        deployment_uid=pod.place.deployment_uid,
        replica=pod.place.replica,
        revision=pod.place.revision,
        pod_uid=pod.place.uid,
        pod_name=pod.place.name,
        address=pod.place.ip,
        keys=keys,
        interface=interface_of(pod.place.ip),
        preload=pod.preload or DEFAULT_PRELOAD,
    )
