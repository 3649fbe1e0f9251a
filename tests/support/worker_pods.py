"""Worker pods as child processes: the real ``python -m torpor_worker pod`` with the environment and
key files that the operator would give it, and the place of their engine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from engine_builders import engine_config
from torpor_engine.executor.base import ExecutorHooks
from torpor_engine.executor.kubernetes import KubernetesExecutor
from torpor_engine.executor.place import Place
from torpor_protocol.errors import GroupLost
from torpor_protocol.pods import ENGINE_FILE, WORKER_FILE, EngineKeys, worker_pod_name
from torpor_protocol.rpc import RankKeys
from torpor_protocol.transport.derive import curve_keys, derive

SUPPORT = Path(__file__).parent
MASTER = bytes(range(32))
UID = "5e4c0bd2-2c2f-4a0d-9d3c-8f3f6f0f6c11"
NAME = "demo"
REVISION = "0a1b2c3d4e"
REPLICA = 1
PATIENCE = 60.0


class Waited(Exception):
    """Unwinds a wait for pods that a test does not want to go on."""


class WorkerPods:
    """``folder`` holds the key files. One device each; ``close`` ends what still lives."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.folder = folder
        self.workers = workers
        self.wire = "tcp://127.0.0.1:0"
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self._all: list[subprocess.Popen[bytes]] = []
        self._write_keys()

    def _write_keys(self) -> None:
        engine = curve_keys(derive(MASTER, UID, f"engine/{REPLICA}"))
        publics = []
        for worker in range(self.workers):
            own = curve_keys(derive(MASTER, UID, f"worker/{REPLICA}/{worker}"))
            publics.append(own.public)
            keys = RankKeys(own.public, own.secret, engine.public)
            self._write(self.keys_of(worker) / WORKER_FILE, keys)
        self.secret = engine.secret
        keys_of_engine = EngineKeys(engine.public, engine.secret, publics)
        self._write(self.engine_keys / ENGINE_FILE, keys_of_engine)

    def _write(self, path: Path, keys: RankKeys | EngineKeys) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode(keys))

    @property
    def engine_keys(self) -> Path:
        return self.folder / "engine"

    def keys_of(self, worker: int) -> Path:
        return self.folder / f"worker-{worker}"

    # The engine's side

    def executor(self, while_waiting: Callable[[], None] = lambda: None) -> KubernetesExecutor:
        """A new engine at the address of the one before."""
        config = engine_config(
            tensor=self.workers, worker_class="fake_worker:FakeWorker", executor="kubernetes"
        )
        place = Place(UID, REPLICA, REVISION, NAME, str(self.engine_keys), self.wire)
        made = KubernetesExecutor(
            config, ExecutorHooks(run_dir=self.folder, while_waiting=while_waiting, place=place)
        )
        self.wire = made._endpoint
        return made

    # Pods

    def environment(self, worker: int, **changes: str) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(SUPPORT), os.environ["PYTHONPATH"]]),
            "OMP_NUM_THREADS": "1",
            "TORPOR_DEPLOYMENT_UID": UID,
            "TORPOR_REPLICA": str(REPLICA),
            "TORPOR_REVISION": REVISION,
            "TORPOR_POD_NAME": worker_pod_name(NAME, REPLICA, worker),
            "TORPOR_POD_UID": f"pod-uid-{worker}",
            "TORPOR_POD_IP": "127.0.0.1",
            "TORPOR_WORKER": str(worker),
            "TORPOR_DEVICES": "1",
            "TORPOR_ENGINE": self.wire,
            "TORPOR_KEYS": str(self.keys_of(worker)),
            "TORPOR_PRELOAD": "fake_worker",
            **changes,
        }

    def start(self, worker: int, **changes: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "torpor_worker", "pod"]
        process = subprocess.Popen(command, env=self.environment(worker, **changes))
        self.processes[worker] = process
        self._all.append(process)
        return process

    def kill(self, worker: int) -> None:
        self.processes[worker].kill()
        self.processes[worker].wait()

    def close(self) -> None:
        for process in self._all:
            if process.poll() is None:
                process.terminate()
        for process in self._all:
            process.wait(PATIENCE)


def loss_of(executor: KubernetesExecutor, seconds: float = PATIENCE) -> GroupLost:
    """The loss that an idle group tells of."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            executor.check_health()
        except GroupLost as loss:
            return loss
        time.sleep(0.02)
    raise AssertionError("nothing was noticed")
