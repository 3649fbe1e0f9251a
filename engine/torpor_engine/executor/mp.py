"""The multi-process executor: a supervisor as a child of the core, ranks as its descendants.

The wire is ``ipc://`` in the private run directory; ``tcp`` with CURVE on the loopback is the same
wire that pods use, kept here so that it is tested where the engine is.
"""

from __future__ import annotations

import itertools
import logging
import os
import signal
import subprocess
import sys

from torpor_engine.executor.base import ExecutorHooks
from torpor_engine.executor.exits import how_it_ended
from torpor_engine.executor.grouped import GroupExecutor
from torpor_protocol.config import EngineConfig
from torpor_protocol.errors import GroupLost
from torpor_protocol.rpc import RankKeys
from torpor_protocol.supervision import SupervisorSettings, encode_settings
from torpor_protocol.transport import CurveKeys, CurveServer, IpcSecurity, Router

log = logging.getLogger(__name__)

STOP_SECONDS = 5.0
LOOPBACK = "lo"
SOCKET = "workers.sock"


class MpExecutor(GroupExecutor):
    def __init__(self, config: EngineConfig, hooks: ExecutorHooks) -> None:
        super().__init__(config, hooks)
        self._numbers = itertools.count()
        self._supervisor = b""
        self._process: subprocess.Popen[bytes] | None = None

    def _open_router(self) -> tuple[Router, str, CurveKeys | None]:
        if self.config.worker_transport == "ipc":
            router = Router(IpcSecurity())
            return router, router.bind(f"ipc://{self.hooks.run_dir / SOCKET}"), None
        keys = CurveKeys.generate()
        router = Router(CurveServer(keys))
        return router, router.bind("tcp://127.0.0.1:0"), keys

    def ensure_supervisors(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self._bury()
        self._supervisor = f"supervisor-{next(self._numbers)}".encode()
        keys = RankKeys()
        if self._server_keys is not None:
            own = CurveKeys.generate()
            keys = RankKeys(own.public, own.secret, self._server_keys.public)
        self._router.admit(self._supervisor, keys.public)
        settings = SupervisorSettings(
            endpoint=self._endpoint,
            identity=self._supervisor.decode(),
            devices=self.config.parallel.world_size,
            deployment_uid=self.hooks.place.uid,
            replica=self.hooks.place.replica,
            keys=keys,
            interface=LOOPBACK,
            preload=(self.config.worker_class.partition(":")[0],),
        )
        self._process = subprocess.Popen(
            [sys.executable, "-m", "torpor_worker", "supervisor"],
            stdin=subprocess.PIPE,
            cwd=self.hooks.run_dir,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(encode_settings(settings))
        self._process.stdin.flush()

    def check_supervisors(self) -> None:
        if self._process is None or self._process.poll() is None:
            return
        how = how_it_ended(self._process.returncode)
        pid = self._process.pid
        self._bury()
        cause = f"The supervisor (process {pid}) {how}."
        raise GroupLost("SupervisorLost", cause, external=True)

    def _bury(self) -> None:
        """Forget a dead supervisor."""
        if self._process is not None:
            self._router.revoke(self._supervisor)
            self._roster.forget(self._supervisor)
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process = None

    def supervisor_alive(self, supervisor: bytes) -> bool:
        return (
            supervisor == self._supervisor
            and self._process is not None
            and self._process.poll() is None
        )

    def kill_supervisor(self, supervisor: bytes) -> None:
        if self.supervisor_alive(supervisor) and self._process is not None:
            log.warning("The supervisor does not answer; killing it and its ranks.")
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._bury()

    def rendezvous(self, group: str) -> tuple[str, str]:
        return f"file://{self.hooks.run_dir / f'store-{group}'}", LOOPBACK

    def disband(self) -> None:
        group = self.group
        super().disband()
        if group:
            (self.hooks.run_dir / f"store-{group}").unlink(missing_ok=True)

    def shutdown(self) -> None:
        """End ranks, supervisor and wire. A closed standard input tells the supervisor to end."""
        self.disband()
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        super().shutdown()
        (self.hooks.run_dir / SOCKET).unlink(missing_ok=True)
