"""The API server without a kubectl for each question: hundreds of small ones take seconds."""

from __future__ import annotations

import http.client
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from kube import Object

GROUP = "/apis/torpor.dev/v1alpha1"


class Answer(NamedTuple):
    """``words``: what kubectl would print for a refusal."""

    accepted: bool
    words: str
    body: Object


class ApiProxy:
    """Talks to a `kubectl proxy` on a loopback port."""

    def __init__(self, port: int) -> None:
        self._port = port

    def get(self, path: str) -> Object:
        answer = self._ask("GET", path)
        assert answer.accepted, f"GET {path}: {answer.words}"
        return answer.body

    def try_create(self, namespace: str, resource: Object) -> Answer:
        """What would become of an InferenceDeployment; nothing is stored."""
        path = f"{GROUP}/namespaces/{namespace}/inferencedeployments"
        return self._ask("POST", f"{path}?dryRun=All&fieldValidation=Strict", resource)

    def _ask(self, method: str, path: str, body: Object | None = None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method, path, sent, {"content-type": "application/json"})
            response = connection.getresponse()
            found: Any = json.loads(response.read())
        finally:
            connection.close()
        return Answer(response.status < 300, str(found.get("message", "")), found)


@contextmanager
def api_proxy() -> Iterator[ApiProxy]:
    process = subprocess.Popen(
        ["kubectl", "proxy", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()  # Starting to serve on 127.0.0.1:PORT
        assert line, process.stderr.read()
        yield ApiProxy(int(line.rsplit(":", 1)[1]))
    finally:
        process.terminate()
        process.communicate()
