"""``torpor serve`` as a subprocess: start it, talk to it, look at its processes, end it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import psutil

READY = re.compile(r"serves \S+ at (http://\S+) \(admin (http://[^,]+), token in ([^)]+)\)")
READY_SECONDS = 180.0
# Every process of a server inherits it, so that one whose parent has died is still found.
MARK = "TESTED_REPLICA"
_SERVE = ("-m", "torpor_engine", "serve", "--port", "0", "--admin-port", "0")


class Replica:
    """One running server. ``url`` and ``admin_url`` have no trailing slash."""

    def __init__(self, target: Path | str, *flags: str, env: dict[str, str] | None = None) -> None:
        self.out = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115 - closed by `close`
        self.log = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115
        self.mark = uuid.uuid4().hex
        self.process = subprocess.Popen(
            [sys.executable, *_SERVE, str(target), *flags],
            stdout=self.out,
            stderr=self.log,
            text=True,
            env={**os.environ, MARK: self.mark, **(env or {})},
        )
        self.url = self.admin_url = self.token = self.ready_line = ""
        self.run_dir = Path()

    # Life

    def wait_ready(self, seconds: float = READY_SECONDS) -> Replica:
        deadline = time.monotonic() + seconds
        text = ""
        while time.monotonic() < deadline and self.process.poll() is None:
            text = _text(self.out)
            found = READY.search(text)
            if found:
                self.url, self.admin_url = found[1], found[2]
                self.ready_line = text[found.start() :].splitlines()[0]
                if not found[3].startswith("$"):
                    self.token = Path(found[3]).read_text().strip()
                    self.run_dir = Path(found[3]).parent
                return self
            time.sleep(0.05)
        raise AssertionError(f"The server did not become ready:\n{text}\n{self.stderr()}")

    def stderr(self) -> str:
        return _text(self.log)

    def stop(self, seconds: float = 30.0) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def close(self) -> None:
        if self.process.poll() is None:
            try:
                self.stop()
            except subprocess.TimeoutExpired:
                for child in self.descendants():
                    with contextlib.suppress(psutil.NoSuchProcess):
                        child.kill()
                self.process.kill()
                self.process.wait()
        self.out.close()
        self.log.close()

    # Processes

    def descendants(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process.pid).children(recursive=True)
        return []

    def processes(self) -> list[psutil.Process]:
        """Whatever was started for this server and is still there, orphans too."""
        found = set(self.descendants())  # a zombie has no environment
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == self.mark:
                    found.add(process)
        return sorted(found, key=lambda process: process.pid)

    def roles(self) -> dict[str, psutil.Process]:
        """Its processes by what they are; executor uni has only the first two."""
        [core] = psutil.Process(self.process.pid).children()
        found = {"API": psutil.Process(self.process.pid), "core": core}
        for supervisor in core.children():
            [fork_server] = supervisor.children()
            found |= {"supervisor": supervisor, "fork server": fork_server}
            for rank, process in enumerate(fork_server.children()):
                found[f"rank {rank}"] = process
        return found

    def rank_pids(self) -> list[int]:
        """Rank processes in rank order; with executor uni the core process."""
        return [rank["pid"] for rank in self.state()["ranks"]]

    def supervisor(self) -> psutil.Process:
        return next(p for p in self.descendants() if "supervisor" in " ".join(p.cmdline()))

    def resident(self, pids: list[int]) -> int:
        """Bytes resident in these processes: anonymous memory, since file pages are shared."""
        return sum(resident_bytes(pid) for pid in pids)

    # HTTP

    def request(
        self, method: str, url: str, body: Any = None, token: str = "", timeout: float = 120.0
    ) -> tuple[int, Any]:
        headers = {"content-type": "application/json"} if body is not None else {}
        if token:
            headers["authorization"] = f"Bearer {token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data=data, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, _decoded(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _decoded(error.read())

    def admin(self, method: str, path: str, timeout: float = 180.0) -> tuple[int, Any]:
        return self.request(method, self.admin_url + path, token=self.token, timeout=timeout)

    def state(self) -> dict[str, Any]:
        status, state = self.admin("GET", "/state")
        assert status == 200, state
        return dict(state)

    def metric(self, *names: str) -> float:
        """The sum of the values of these names, less ``vllm:``, at one moment."""
        status, text = self.request("GET", self.url + "/metrics")
        assert status == 200, text
        starts = tuple(f"vllm:{name}{{" for name in names)
        lines = [line for line in text.splitlines() if line.startswith(starts)]
        assert len(lines) >= len(names), f"{names} are not all there: {lines}"
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def complete(self, prompt: Any, max_tokens: int = 16, **fields: Any) -> dict[str, Any]:
        """One greedy completion. Gives the first choice."""
        body = {"model": self.model(), "prompt": prompt, "max_tokens": max_tokens}
        body |= {"temperature": 0} | fields
        status, answer = self.request("POST", self.url + "/v1/completions", body)
        assert status == 200, answer
        return dict(answer["choices"][0])

    def model(self) -> str:
        status, models = self.request("GET", self.url + "/v1/models")
        assert status == 200, models
        return str(models["data"][0]["id"])

    def wait_state(self, lifecycle: str, seconds: float = 60.0) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while (state := self.state())["lifecycle"] != lifecycle:
            assert time.monotonic() < deadline, f"{state} is not {lifecycle}"
            time.sleep(0.02)
        return state


def _text(file: IO[str]) -> str:
    """What a process has written so far. Reads by position: the file offset is the writer's."""
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), size, 0).decode(errors="replace")


def _decoded(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode(errors="replace")


def resident_bytes(pid: int) -> int:
    """Anonymous resident memory of a process, in bytes; 0 when it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"^RssAnon:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


@contextlib.contextmanager
def running(target: Path | str, *flags: str, **kwargs: Any) -> Iterator[Replica]:
    """A ready server for the length of a block."""
    replica = Replica(target, *flags, **kwargs)
    try:
        yield replica.wait_ready()
    finally:
        replica.close()
