"""What the demo on a cluster and the end-to-end tests share: images, a client, a memory probe."""

from __future__ import annotations

from typing import Any

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


def image_values(operator: str, runtime: str) -> list[str]:
    """Flags of helm that name the two images of the chart."""
    values = []
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
