"""The supervisor's end of its fork server: start it, command it, read its reports, replace it.

The fork server keeps torch imported, so that a group forms in a tenth of a second instead of the
seconds that the import takes; the supervisor itself never imports torch.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from torpor_worker.forks import Command, Lines, Report, report_decoder, write_line

_CHUNK = 64 * 2**10
# A library's thread pool would make forking unsafe; ranks set their own number of threads.
_SINGLE_THREADED = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


class ForkServer:
    """``pid`` is 0 while none runs."""

    def __init__(self, preload: Sequence[str]) -> None:
        self._preload = list(preload)
        self.pid = 0

    def start(self) -> None:
        # -P: a file of the working directory must not stand in for a module.
        command = [sys.executable, "-P", "-m", "torpor_worker", "fork-server", str(os.getpid())]
        self._process = subprocess.Popen(
            [*command, *self._preload],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, **_SINGLE_THREADED},
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._commands = self._process.stdin
        self._reports = self._process.stdout
        self._lines = Lines()
        self.pid = self._process.pid

    def fileno(self) -> int:
        """Readable when there are reports, or when the fork server is dead."""
        return self._reports.fileno()

    def send(self, command: Command) -> None:
        """A dead fork server takes no command; its end is noticed by :meth:`read`."""
        try:
            write_line(self._commands.fileno(), command)
        except BrokenPipeError:
            return

    def read(self) -> list[Report] | None:
        """The reports that are there; None at the end of file."""
        chunk = os.read(self.fileno(), _CHUNK)
        return self._lines.feed(chunk, report_decoder) if chunk else None

    def end(self) -> int:
        """SIGKILL it if it lives, reap it, close the pipes. Gives its exit status."""
        self._process.kill()
        status = self._process.wait()
        self._commands.close()
        self._reports.close()
        self.pid = 0
        return status
