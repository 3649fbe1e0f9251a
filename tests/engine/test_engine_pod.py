"""``torpor engine`` with two worker pods, as they run in a cluster, on a model that computes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from torpor_engine.pod import serve_options
from torpor_protocol.errors import ConfigError
from torpor_protocol.pods import engine_pod_name, read_engine_pod
from worker_pods import NAME, REPLICA, REVISION, UID, WorkerPods

TOKEN = "token-of-the-operator"
PATIENCE = 150.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def resource(**spec: Any) -> str:
    model = {"source": "pvc://models/tiny", "servedNames": ["tiny"]}
    return json.dumps(
        {
            "apiVersion": "torpor.dev/v1alpha1",
            "kind": "InferenceDeployment",
            "metadata": {"name": NAME, "namespace": "default", "uid": UID},
            "spec": {
                "model": model,
                "parallelism": {"tensor": 2},
                "worker": {"accelerator": "none", "ranksPerPod": 1, "kvCacheMemory": "1Mi"},
                **spec,
            },
        }
    )


class EnginePod:
    """The engine of ``pods`` as a child process on free ports."""

    def __init__(self, pods: WorkerPods, model: Path) -> None:
        client, admin, wire = (free_port() for _ in range(3))
        pods.wire = f"tcp://127.0.0.1:{wire}"
        (pods.engine_keys / "admin-token").write_text(TOKEN)
        self.urls = {"client": f"http://127.0.0.1:{client}", "admin": f"http://127.0.0.1:{admin}"}
        self.environment = {
            "TORPOR_DEPLOYMENT": resource(),
            "TORPOR_DEPLOYMENT_UID": UID,
            "TORPOR_REPLICA": str(REPLICA),
            "TORPOR_REVISION": REVISION,
            "TORPOR_POD_NAME": engine_pod_name(NAME, REPLICA),
            "TORPOR_POD_UID": "pod-uid",
            "TORPOR_POD_IP": "127.0.0.1",
            "TORPOR_MODEL_PATH": str(model),
            "TORPOR_KEYS": str(pods.engine_keys),
            "TORPOR_CLIENT_PORT": str(client),
            "TORPOR_ADMIN_PORT": str(admin),
            "TORPOR_WIRE": pods.wire,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "torpor_engine", "engine"],
            env={**os.environ, **self.environment},
        )

    def ask(self, port: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        headers = {"authorization": f"Bearer {TOKEN}"} if port == "admin" else {}
        data = None
        if body is not None:
            headers["content-type"], data = "application/json", json.dumps(body).encode()
        request = urllib.request.Request(self.urls[port] + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())
        except OSError:
            return 0, {}

    def state(self) -> dict[str, Any]:
        return dict(self.ask("admin", "GET", "/state")[1])

    def until(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while not condition(state := self.state()):
            assert self.process.poll() is None
            assert time.monotonic() < deadline, state
            time.sleep(0.1)
        return state

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[WorkerPods]:
    made = WorkerPods(tmp_path)
    yield made
    made.close()


@pytest.fixture
def engine(pods: WorkerPods, tiny_llama: Path) -> Iterator[EnginePod]:
    made = EnginePod(pods, tiny_llama)
    yield made
    made.stop()


def complete(engine: EnginePod) -> str:
    body = {"model": "tiny", "prompt": "Hello", "max_tokens": 8, "temperature": 0}
    status, answer = engine.ask("client", "POST", "/v1/completions", body)
    assert status == 200, answer
    return str(answer["choices"][0]["text"])


def test_a_replica_of_three_pods_from_start_to_end(pods: WorkerPods, engine: EnginePod) -> None:
    waiting = engine.until(lambda state: bool(state.get("waiting_for")))
    assert "0 of 2 are here" in waiting["waiting_for"]
    assert waiting["lifecycle"] == "Starting" and waiting["executor"] == "kubernetes"
    assert engine.ask("client", "GET", "/livez")[0] == 200
    assert engine.ask("client", "GET", "/readyz")[0] == 503

    for worker in (0, 1):
        pods.start(worker, TORPOR_PRELOAD="")
    state = engine.until(lambda state: state.get("lifecycle") == "Awake")
    assert (state["waiting_for"], state["restarts"]) == ("", 0)
    assert engine.ask("client", "GET", "/readyz")[0] == 200
    before = complete(engine)
    for process in (psutil.Process(engine.process.pid), *psutil.Process().children(True)):
        told = " ".join([*process.cmdline(), *process.environ().values()])
        assert TOKEN not in told and pods.secret not in told

    pods.kill(1)
    waiting = engine.until(lambda state: bool(state.get("waiting_for")))
    assert waiting["lifecycle"] == "Recovering" and "demo-1-worker-1" in waiting["waiting_for"]
    assert waiting["last_loss"]["reason"] == "PodLost"
    pods.start(1, TORPOR_PRELOAD="")
    state = engine.until(lambda state: state.get("lifecycle") == "Awake")
    assert state["restarts"] == 1, "waiting for a pod costs nothing"
    assert complete(engine) == before

    assert engine.stop() == 0
    assert [process.poll() for process in pods.processes.values()] == [None, None]
    pods.close()
    assert [process.returncode for process in pods.processes.values()] == [0, 0]


def test_options_of_a_pod_are_open_to_the_network_and_hide_the_token(
    pods: WorkerPods,
) -> None:
    environ = {
        "TORPOR_DEPLOYMENT": resource(),
        "TORPOR_DEPLOYMENT_UID": UID,
        "TORPOR_REPLICA": "1",
        "TORPOR_REVISION": REVISION,
        "TORPOR_POD_NAME": "demo-1-engine",
        "TORPOR_POD_UID": "pod-uid",
        "TORPOR_POD_IP": "10.0.0.1",
        "TORPOR_MODEL_PATH": "/model",
        "TORPOR_KEYS": str(pods.engine_keys),
    }
    with pytest.raises(ConfigError, match="admin-token"):
        serve_options(read_engine_pod(environ), NAME)
    (pods.engine_keys / "admin-token").write_text(TOKEN)
    options = serve_options(read_engine_pod(environ), NAME)
    assert (options.host, options.port) == ("0.0.0.0", 8000)
    assert (options.admin_host, options.admin_port) == ("0.0.0.0", 8001)
    assert options.place.name == NAME and options.place.wire == "tcp://0.0.0.0:7070"
    assert options.token == TOKEN and TOKEN not in repr(options)
