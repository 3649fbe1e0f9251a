"""A server as a tree of processes: start it, weigh it, see whether it idles, end it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
from benchmarks.places import ROOT

STOP_SECONDS = 30.0
POLL_SECONDS = 0.05


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Ours less what would reach into another engine's interpreter, hubs switched off."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return kept | {"HF_HUB_OFFLINE": "1", **(extra or {})}


class Tree:
    """A process and all that came of it. Output goes to ``log``."""

    def __init__(
        self, command: Sequence[str], log: Path, extra: Mapping[str, str] | None = None
    ) -> None:
        self.log = log
        self.started = time.perf_counter()
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                list(command),
                cwd=ROOT,
                env=environment(extra),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def members(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(self.process.pid)
            return [root, *root.children(recursive=True)]
        return []

    def pss_bytes(self) -> int:
        """Memory with shared pages counted in parts, over the whole tree."""
        total = 0
        for member in self.members():
            with contextlib.suppress(psutil.Error, OSError):
                total += member.memory_full_info().pss
        return total

    def cpu_seconds(self) -> float:
        total = 0.0
        for member in self.members():
            with contextlib.suppress(psutil.Error, OSError):
                times = member.cpu_times()
                total += times.user + times.system
        return total

    def idle_cores(self, seconds: float = 2.0) -> float:
        """Cores that the tree burns while nothing is asked of it."""
        before, at = self.cpu_seconds(), time.perf_counter()
        time.sleep(seconds)
        return (self.cpu_seconds() - before) / (time.perf_counter() - at)

    def tail(self, lines: int = 15) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self) -> None:
        """End the whole tree; what does not end by itself is killed."""
        members = self.members()
        if self.alive:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_SECONDS)
        _, left = psutil.wait_procs(members, timeout=1.0)
        for member in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        psutil.wait_procs(left, timeout=STOP_SECONDS)
        if self.alive:
            self.process.kill()
        self.process.wait()


def wait_for_status(tree: Tree, url: str, seconds: float) -> bool:
    """Whether ``url`` answered 200 before the process ended or the time was up."""
    deadline = time.perf_counter() + seconds
    while tree.alive and time.perf_counter() < deadline:
        with (
            contextlib.suppress(urllib.error.URLError, OSError),
            urllib.request.urlopen(url, timeout=5) as answer,
        ):
            if answer.status == 200:
                return True
        time.sleep(POLL_SECONDS)
    return False
