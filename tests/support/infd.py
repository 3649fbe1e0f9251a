"""InferenceDeployments for tests on a cluster."""

from __future__ import annotations

from typing import Any

from cluster_kit import RESIDENT
from kube import Kube, Object

# What a pod of the small model takes: several replicas share two cores.
_ENGINE = {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}
_WORKER = {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "3Gi"}}


def infd(name: str, image: str, /, **spec: Any) -> Object:
    """A CPU deployment of a model image; parts of its spec as given, merged one level deep."""
    body: dict[str, Any] = {
        "replicas": 1,
        "model": {
            "source": f"oci://{image}",
            "dtype": "float32",
            "servedNames": [name],
            "maxModelLen": 1024,
        },
        "engine": {"maxNumSeqs": 8, "maxNumBatchedTokens": 256, "resources": _ENGINE},
        "worker": {
            "accelerator": "none",
            "kvCacheMemory": "192Mi",
            "resources": _WORKER,
            "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
        },
        "recovery": {"maxRestarts": 100, "backoffSeconds": 0},
    }
    for key, value in spec.items():
        body[key] = {**body.get(key, {}), **value} if isinstance(value, dict) else value
    return {
        "apiVersion": "torpor.dev/v1alpha1",
        "kind": "InferenceDeployment",
        "metadata": {"name": name},
        "spec": body,
    }


def with_tag(image: str, tag: str) -> str:
    """That image under another tag of the same repository, there or not."""
    return f"{image.rpartition(':')[0]}:{tag}"


def runtime(image: str) -> dict[str, Any]:
    """The part of a spec that has engine and workers run from an image of its own."""
    return {"engine": {"image": image}, "worker": {"image": image}}


def resident(kube: Kube, pod: str) -> int:
    """Private bytes of all processes of a pod."""
    return int(kube.kubectl("exec", pod, "--", "python", "-c", RESIDENT))


_FIND_RANKS = """
import os, sys
def children(parent):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            state, its_parent = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[:2]
            if int(its_parent) == parent and state != "Z":
                found.append(int(pid))
        except OSError:
            pass
    return found
# The supervisor is the pod's first process, the fork server its child, the ranks children of that.
(server,) = children(1)
ranks = children(server)
print(*ranks, flush=True)
"""

_SIGNAL_RANKS = (
    _FIND_RANKS
    + """
for rank in ranks:
    os.kill(rank, int(sys.argv[1]))
"""
)

# The kernel chooses the victim by its size and a score, which anybody may raise: so many small
# processes fill the memory, and the rank is the one to go. They end when their parent does.
_EXHAUST_MEMORY = (
    _FIND_RANKS
    + """
import subprocess
for rank in ranks:
    open(f"/proc/{rank}/oom_score_adj", "w").write("1000")
hoard = "import sys; hoard = b'x' * 2**27; print(flush=True); sys.stdin.read()"
pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
hoarders = []
while ranks == children(server):
    hoarders.append(subprocess.Popen([sys.executable, "-c", hoard], **pipes))
    hoarders[-1].stdout.readline()
for hoarder in hoarders:
    hoarder.kill()
"""
)


def signal_ranks(kube: Kube, pod: str, number: int) -> list[int]:
    """Send a signal to the rank processes of a worker pod; gives their ids there."""
    answer = kube.kubectl("exec", pod, "--", "python", "-c", _SIGNAL_RANKS, str(number))
    return [int(pid) for pid in answer.split()]


def exhaust_memory(kube: Kube, pod: str) -> None:
    """Fill a worker pod's memory until the kernel has killed a rank, or the whole container."""
    kube.try_kubectl("exec", pod, "--", "python", "-c", _EXHAUST_MEMORY)


def broken_infd(name: str, model: str, **spec: Any) -> Object:
    """One whose model's image does not exist: all its children do, and its pods cost nothing."""
    return infd(name, with_tag(model, "no-such-tag"), **spec)
