"""What the demo on a cluster and the end-to-end tests share: images, a client, a memory probe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

CHART = Path(__file__).resolve().parents[1] / "charts" / "torpor"
RELEASE = "torpor"
SYSTEM = "torpor-system"  # where the operator is installed
CLIENT = "client"

# Runs in a worker pod: private bytes of all its processes. Memory that is shared or comes from
# files is not counted, for the kernel takes that back by itself.
RESIDENT = """
import os
total = 0
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        lines = open(f"/proc/{pid}/status").read().splitlines()
    except OSError:
        continue
    total += sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))
print(total * 1024)
"""


def install_flags(operator: str, runtime: str, seconds: int) -> list[str]:
    """Arguments of helm that install or upgrade the chart with these two images, and wait for the
    operator so long."""
    values = [
        *("upgrade", "--install", RELEASE, str(CHART), f"--namespace={SYSTEM}"),
        *("--create-namespace", "--wait", f"--timeout={seconds}s"),
    ]
    for value, image in (("image", operator), ("runtimeImage", runtime)):
        repository, _, tag = image.rpartition(":")
        values += [f"--set={value}.repository={repository}", f"--set-string={value}.tag={tag}"]
    return values


def client_pod(image: str) -> dict[str, Any]:
    """A pod that does nothing, in which requests are made; the runtime image will do."""
    container = {
        "name": CLIENT,
        "image": image,
        "command": ["python", "-c", "import time; time.sleep(1e9)"],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": CLIENT},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
    }
