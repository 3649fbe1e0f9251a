"""The installed operator from outside: stopped, started, killed, and what it logged."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cluster_kit import SYSTEM
from kube import Kube, Object, wait_for

_SELECTOR = "app.kubernetes.io/component=operator"
_POD = "killable-operator"

# The first process of a PID namespace cannot be killed from inside it, and a killed container comes
# back more slowly each time. So the operator runs as a child here, and a new one follows at once.
_PARENT = """
import os, signal, subprocess, sys
child = None
def end(*_):
    child.terminate()
    os.waitpid(child.pid, 0)  # not child.wait(), whose lock the loop below holds
    os._exit(0)
signal.signal(signal.SIGTERM, end)
while True:
    child = subprocess.Popen([sys.executable, "-m", "torpor_operator"])
    with open("/tmp/operator.new", "w") as file:
        file.write(str(child.pid))
    os.replace("/tmp/operator.new", "/tmp/operator.pid")
    child.wait()
"""
# For each line, seconds: waits so long, then kills the operator of that moment.
_KILLER = """
import os, signal, sys, time
for line in sys.stdin:
    time.sleep(float(line))
    pid = int(open("/tmp/operator.pid").read())
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pid = 0
    print(pid, flush=True)
"""


def clear_aborted_run() -> None:
    """What a run that was killed may have left of an operator: another one waits for it."""
    kube = Kube(SYSTEM)
    kube.try_kubectl("delete", "pod", _POD, "--ignore-not-found")
    kube.try_kubectl("scale", "deployment", "-l", _SELECTOR, "--replicas=1")


class OperatorControl:
    """Of the chart's Deployment. ``logs``: what operators logged which this has ended; ``log`` adds
    the running one's. What was logged before this was made is left out."""

    def __init__(self) -> None:
        self.kube = Kube(SYSTEM)
        self.logs = ""
        self._earlier = {name: len(text) for name, text in self._running()}

    @property
    def deployment(self) -> Object:
        return self.kube.listed("deployments", _SELECTOR)[0]

    @property
    def user(self) -> str:
        """Its name in the audit log."""
        account = self.deployment["spec"]["template"]["spec"]["serviceAccountName"]
        return f"system:serviceaccount:{SYSTEM}:{account}"

    def stop(self) -> None:
        """Returns when no pod of it is left."""
        self.logs = self.log()
        name = self.deployment["metadata"]["name"]
        self.kube.kubectl("scale", "deployment", name, "--replicas=0")
        wait_for(
            lambda: not self.kube.listed("pods", _SELECTOR), 60, lambda: "the operator does not end"
        )

    def start(self) -> None:
        name = self.deployment["metadata"]["name"]
        self.kube.kubectl("scale", "deployment", name, "--replicas=1")
        self.kube.kubectl("rollout", "status", f"deployment/{name}", "--timeout=120s", timeout=150)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        self.stop()
        try:
            yield
        finally:
            self.start()

    def restart(self) -> None:
        with self.stopped():
            pass

    def log(self) -> str:
        """JSON lines."""
        return self.logs + "".join(
            text[self._earlier.get(name, 0) :] for name, text in self._running()
        )

    def _running(self) -> list[tuple[str, str]]:
        """Each container that runs, and its whole log."""
        pods = self.kube.listed("pods", _SELECTOR)
        return [
            (_container(pod), self.kube.kubectl("logs", pod["metadata"]["name"])) for pod in pods
        ]

    def complaints(self) -> list[str]:
        """Lines of the log that tell of something wrong in the operator itself."""
        return [line for line in self.log().splitlines() if _complains(line)]

    @contextmanager
    def killable(self) -> Iterator[Killer]:
        """In place of the Deployment's pod, one of its template whose operator can be killed."""
        with self.stopped():
            template = self.deployment["spec"]["template"]
            self.kube.apply(_killable_pod(template))
            try:
                ready = ("wait", "pod", _POD, "--for=condition=Ready", "--timeout=120s")
                self.kube.kubectl(*ready)
                with Killer(self.kube) as killer:
                    yield killer
                self.logs += self.kube.kubectl("logs", _POD)
            finally:
                self.kube.kubectl("delete", "pod", _POD)


class Killer:
    """Kills at exact moments: the line is open before they come."""

    def __init__(self, kube: Kube) -> None:
        command = ["kubectl", "--namespace", kube.namespace, "exec", "-i", _POD, "--"]
        self._process = subprocess.Popen(
            [*command, "python", "-u", "-c", _KILLER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Killer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=30)

    def kill_in(self, seconds: float) -> None:
        """Returns at once; ``killed`` waits for it."""
        assert self._process.stdin is not None
        print(seconds, file=self._process.stdin, flush=True)

    def killed(self) -> None:
        """Fails when no operator was alive at the moment."""
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        assert int(answer or 0) > 0, f"there was nothing to kill: {answer!r}"


def _container(pod: Object) -> str:
    """One that is started again has a new log."""
    restarts = sum(each["restartCount"] for each in pod["status"].get("containerStatuses", []))
    return f"{pod['metadata']['name']}/{restarts}"


def _killable_pod(template: Object) -> Object:
    """Same account, labels, environment, volumes and security as the chart's."""
    spec: dict[str, Any] = json.loads(json.dumps(template["spec"]))
    [container] = spec["containers"]
    container["command"] = ["python", "-u", "-c", _PARENT]
    metadata = {"name": _POD, "labels": template["metadata"]["labels"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _complains(line: str) -> bool:
    try:
        entry = json.loads(line)
    except ValueError:
        return True
    return entry["level"] not in {"DEBUG", "INFO"} or "traceback" in entry
