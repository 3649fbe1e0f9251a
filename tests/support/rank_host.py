"""Runs a function in several real processes, as the ranks of a world.

torch takes seconds to import, so one host process imports it and forks the ranks of each job. The
host is a plain child of the test; jobs and answers are lines of JSON, bulk results are files.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

TIMEOUT = 120.0
_FAILED = 1


class RankHost:
    """A context: the host ends with it, and with the test process whatever happens."""

    def __enter__(self) -> RankHost:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = str(Path(__file__).parent)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rank_host"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=TIMEOUT)

    def run(self, function: str, world_size: int, folder: Path, **arguments: Any) -> list[int]:
        """Call "module:function"(rank, folder, **arguments) in each rank; the exit statuses.

        ``folder`` is the ranks' place for results. A rank that raises prints its traceback and
        exits with 1; one that is still there after TIMEOUT is killed (-9).
        """
        job = [function, world_size, str(folder), arguments]
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        statuses: list[int] = json.loads(self._process.stdout.readline())
        return statuses


def _fork(function: str, rank: int, folder: Path, arguments: dict[str, Any]) -> int:
    child = os.fork()
    if child:
        return child
    status = _FAILED
    try:
        module, _, name = function.partition(":")
        getattr(importlib.import_module(module), name)(rank, folder, **arguments)
        status = 0
    finally:
        # The child must not go on as the host, whatever was raised.
        if status:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(status)


def _wait(children: list[int]) -> list[int]:
    deadline = time.monotonic() + TIMEOUT
    statuses: dict[int, int] = {}
    while len(statuses) < len(children):
        late = time.monotonic() > deadline
        for child in children:
            if child in statuses:
                continue
            if late:
                os.kill(child, signal.SIGKILL)
            done, status = os.waitpid(child, 0 if late else os.WNOHANG)
            if done:
                statuses[child] = os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    return [statuses[child] for child in children]


def main() -> None:
    """The host: one job a line until standard input ends."""
    importlib.import_module("torch.distributed")
    for line in sys.stdin:
        function, world_size, folder, arguments = json.loads(line)
        children = [_fork(function, rank, Path(folder), arguments) for rank in range(world_size)]
        print(json.dumps(_wait(children)), flush=True)


if __name__ == "__main__":
    main()
