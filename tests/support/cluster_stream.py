"""Requests from inside the cluster: a pod that talks to the client Service by its name."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from typing import Any

from cluster_kit import CLIENT
from kube import Kube

# Runs in the pod. One line per event: seconds since the request, then what came.
_PROGRAM = """
import http.client, json, sys, time
host, port, path, body = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
connection = http.client.HTTPConnection(host, port, timeout=600)
connection.request("POST", path, body, {"content-type": "application/json"})
answer = connection.getresponse()
print(json.dumps({"status": answer.status}), flush=True)
for line in answer:
    line = line.decode().strip()
    if line.startswith("data: ") or answer.status != 200 or not line.startswith(":"):
        print(json.dumps({"line": line}), flush=True)
"""


class ClusterStream:
    """A streamed completion through the client Service. Starts at once."""

    def __init__(self, kube: Kube, service: str, body: dict[str, Any]) -> None:
        body = {"temperature": 0, "ignore_eos": True, "stream": True} | body
        self._process = subprocess.Popen(
            [
                "kubectl",
                "--namespace",
                kube.namespace,
                "exec",
                CLIENT,
                "--",
                "python",
                "-c",
                _PROGRAM,
                service,
                "8000",
                "/v1/completions",
                json.dumps(body),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started = time.monotonic()
        self.status = 0
        self.pieces: list[str] = []
        self.times: list[float] = []
        self.done = False
        self.error = ""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._process as process:
            assert process.stdout is not None and process.stderr is not None
            for line in process.stdout:
                self._take(json.loads(line))
            if process.wait() and not self.done:
                self.error = self.error or process.stderr.read()

    def _take(self, event: dict[str, Any]) -> None:
        self.status = event.get("status", self.status)
        line = event.get("line", "")
        if line == "data: [DONE]":
            self.done = True
        elif line.startswith("data: "):
            chunk = json.loads(line.removeprefix("data: "))
            if "error" in chunk:
                self.error = json.dumps(chunk["error"])
            for choice in chunk.get("choices", []):
                if choice["text"]:
                    self.pieces.append(choice["text"])
                    self.times.append(time.monotonic())
        elif line and self.status != 200:
            self.error += line

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def wait_pieces(self, count: int, seconds: float = 180) -> None:
        deadline = time.monotonic() + seconds
        while len(self.pieces) < count:
            assert not self.error, self.error
            assert time.monotonic() < deadline, f"only {len(self.pieces)} pieces came"
            time.sleep(0.01)

    def finish(self, seconds: float = 600) -> str:
        """Wait for the end; gives the text. Fails when the stream ended with an error."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), f"the stream hangs after {len(self.pieces)} pieces"
        assert not self.error and self.done, self.error or f"status {self.status}, no end"
        return self.text

    def longest_pause(self, moment: float) -> float:
        """Seconds between two pieces of which the later one came after a moment."""
        pairs = zip(self.times, self.times[1:], strict=False)
        return max((later - one for one, later in pairs if later > moment), default=0.0)
