"""``torpor engine``: the engine pod of one replica. Everything is in its environment and key files.

The same server as ``torpor serve``; what differs is where settings come from, that the ports are
open to the network, and that the ranks live in pods of their own.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from torpor_engine.configure import resolve_pod
from torpor_engine.executor import Place
from torpor_engine.serve import ServeOptions, serve
from torpor_protocol.manifest import parse_json
from torpor_protocol.pods import (
    DEPLOYMENT,
    TOKEN_FILE,
    EnginePod,
    read_engine_keys,
    read_engine_pod,
    read_token,
)

log = logging.getLogger(__name__)
_STOPPED = 128 + signal.SIGTERM
# A pod is told to end at the same time as the Service is told to leave it out.
_LEAVE_SECONDS = 3.0


def run_engine_pod(environ: Mapping[str, str]) -> int:
    """Run until stopped; gives the exit code. Raises TorporError when the replica cannot run."""
    # The kernel drops a SIGTERM of a container's first process unless somebody handles it; the
    # server does so once its loop runs.
    signal.signal(signal.SIGTERM, _leave)
    pod = read_engine_pod(environ)
    deployment = parse_json(pod.deployment, DEPLOYMENT)
    # The core reads the keys by itself. Here wrong ones are told before anything starts.
    read_engine_keys(Path(pod.place.keys))
    resolved = resolve_pod(deployment, Path(pod.model_path))
    log.info(
        "Engine of %s, replica %d, revision %s.",
        deployment.metadata.name,
        pod.place.replica,
        pod.place.revision,
    )
    return serve(resolved, serve_options(pod, deployment.metadata.name))


def serve_options(pod: EnginePod, deployment: str) -> ServeOptions:
    """Raises ConfigError when the token's file holds none."""
    folder = Path(pod.place.keys)
    return ServeOptions(
        host=pod.host,
        port=pod.client_port,
        admin_host=pod.host,
        admin_port=pod.admin_port,
        token=read_token(folder),
        token_source=str(folder / TOKEN_FILE),
        place=Place(
            uid=pod.place.deployment_uid,
            replica=pod.place.replica,
            revision=pod.place.revision,
            name=deployment,
            keys=pod.place.keys,
            wire=pod.wire,
        ),
        leave_seconds=_LEAVE_SECONDS,
    )


def _leave(_number: int, _frame: FrameType | None) -> None:
    sys.exit(_STOPPED)
