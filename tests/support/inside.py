"""Programs that run inside pods of a cluster: what is seen, reached and tried from there.

A program is a file of `pod_programs`, sent as text. What it is told comes on its standard input,
never as an argument, because arguments and variables are among the things that tests look at.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

from kube import Kube

PROGRAMS = Path(__file__).with_name("pod_programs")
CONNECT_SECONDS = 3.0


def _command(kube: Kube, pod: str, program: str) -> list[str]:
    text = (PROGRAMS / f"{program}.py").read_text()
    return ["kubectl", "-n", kube.namespace, "exec", "-i", pod, "--", "python", "-c", text]


class Running:
    """A program that has been started in a pod and goes on beside the test."""

    def __init__(self, kube: Kube, pod: str, program: str, told: Any) -> None:
        self._what = f"{program} in {pod}"
        self._process = subprocess.Popen(
            _command(kube, pod, program),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(told) + "\n")
        self._process.stdin.flush()

    def going_on(self) -> bool:
        return self._process.poll() is None

    def finish(self, seconds: float = 120) -> Any:
        """What it tells at its end."""
        out, err = self._process.communicate(timeout=seconds)
        assert self._process.returncode == 0, f"{self._what}: {err}"
        return json.loads(out)


def run_inside(kube: Kube, pod: str, program: str, told: Any = None, seconds: float = 120) -> Any:
    return Running(kube, pod, program, told).finish(seconds)


def reach(kube: Kube, pod: str, targets: list[tuple[str, int]]) -> dict[tuple[str, int], str]:
    """What becomes of a connection from the pod to each address: "open", "refused" or "silence"."""
    told = {"targets": targets, "seconds": CONNECT_SECONDS}
    return dict(zip(targets, run_inside(kube, pod, "reach", told), strict=True))


def settled(kube: Kube, pod: str, target: tuple[str, int], opened: bool, seconds: float) -> bool:
    """Whether the connection comes to be open, or shut, within some seconds: network plug-ins
    take a moment to see a new pod or policy."""
    deadline = time.monotonic() + seconds
    while (reach(kube, pod, [target])[target] == "open") is not opened:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.5)
    return True


def ask(
    kube: Kube, pod: str, address: tuple[str, int], *requests: tuple[str, str, dict[str, str]]
) -> list[tuple[int, str]]:
    """HTTP requests (method, path, headers) from the pod: status and body of each answer."""
    told = {"address": address, "requests": requests}
    return [(status, body) for status, body in run_inside(kube, pod, "ask", told)]
