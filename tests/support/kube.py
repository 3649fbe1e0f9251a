"""kubectl for tests: one namespace of a real cluster, as a person would use it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from typing import Any

Object = dict[str, Any]


class Kube:
    """Everything here goes through the API server, whoever made the cluster."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    def kubectl(
        self, *arguments: str, text: str = "", timeout: float = 150, check: bool = True
    ) -> str:
        """Standard output. Fails with standard error when the command does."""
        done = self.try_kubectl(*arguments, text=text, timeout=timeout)
        assert not check or done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def try_kubectl(
        self, *arguments: str, text: str = "", timeout: float = 150
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["kubectl", "--namespace", self.namespace, *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    # Objects

    def apply(self, *objects: Object) -> None:
        self.kubectl(
            "apply",
            "-f",
            "-",
            text=json.dumps({"kind": "List", "apiVersion": "v1", "items": list(objects)}),
        )

    def get(self, kind: str, name: str) -> Object:
        return dict(json.loads(self.kubectl("get", kind, name, "-o", "json")))

    def exists(self, kind: str, name: str) -> bool:
        return self.try_kubectl("get", kind, name).returncode == 0

    def listed(self, kind: str, selector: str = "") -> list[Object]:
        chosen = ["-l", selector] if selector else []
        return list(json.loads(self.kubectl("get", kind, *chosen, "-o", "json"))["items"])

    def condition(self, name: str, kind: str = "Ready") -> Object:
        """A condition of a deployment; empty while it has none."""
        conditions = self.get("infd", name).get("status", {}).get("conditions", [])
        return next((dict(c) for c in conditions if c["type"] == kind), {})

    def pods(self, deployment: str, role: str = "") -> list[Object]:
        chosen = f"torpor.dev/deployment={deployment}" + (
            f",torpor.dev/role={role}" if role else ""
        )
        return self.listed("pods", chosen)

    def uids(self, deployment: str, role: str = "") -> dict[str, str]:
        pods = self.pods(deployment, role)
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}

    # Waiting

    def wait_ready(self, name: str, seconds: float = 300) -> None:
        self.kubectl(
            "wait",
            "infd",
            name,
            "--for=condition=Ready",
            f"--timeout={seconds:.0f}s",
            timeout=seconds + 30,
        )

    def wait_reason(self, name: str, reason: str, seconds: float, kind: str = "Ready") -> None:
        """Until the condition has this reason."""
        wait_for(
            lambda: self.condition(name, kind).get("reason") == reason,
            seconds,
            lambda: f"{kind} of {name} is {self.condition(name, kind)}, not {reason}",
        )

    def replicas(self, name: str) -> dict[int, str]:
        """State of each replica by index."""
        status = self.get("infd", name).get("status", {})
        return {r["index"]: r["state"] for r in status.get("replicaStatuses", [])}

    def scale(self, name: str, replicas: int) -> None:
        self.kubectl("scale", "infd", name, f"--replicas={replicas}")


def wait_for(
    probe: Callable[[], Any], seconds: float, otherwise: Callable[[], str], pause: float = 0.3
) -> Any:
    """The first truthy value of ``probe``; fails with the words of ``otherwise``."""
    deadline = time.monotonic() + seconds
    while True:
        found = probe()
        if found:
            return found
        assert time.monotonic() < deadline, otherwise()
        time.sleep(pause)
