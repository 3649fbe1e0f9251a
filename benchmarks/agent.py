"""A process that measures when it is asked: one JSON line in, one out.

Two engines that are measured alternately must both be there all the time, and only one may work;
each waits on its standard input meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.places import ROOT
from benchmarks.processes import environment

CLOSE_SECONDS = 60.0
ANSWER = "BENCH "  # engines print what they like; lines that begin so are answers


class AgentError(Exception):
    """The process ended or said nothing useful; the message has the end of its log."""


class Agent:
    def __init__(
        self, command: Sequence[str], log: Path, extra: Mapping[str, str] | None = None
    ) -> None:
        self._log = log
        self._busy = False
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                list(command),
                cwd=ROOT,
                env=environment({"PYTHONPATH": str(ROOT), **(extra or {})}),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Raises AgentError."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._busy = True
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise AgentError(self._last_words()) from error
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                self._busy = False
                return dict(json.loads(line.removeprefix(ANSWER)))
        raise AgentError(self._last_words())

    def _last_words(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-12:])

    def close(self) -> None:
        """End it and its children; one that still works on a question is not waited for."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(0.0 if self._busy else CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process.stdout.close()
