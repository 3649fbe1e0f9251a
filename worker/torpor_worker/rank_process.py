"""From a fork to a rank: what the child does between ``fork`` and its first message.

Separate from the rank's work (`rank`): here is everything that a forked child inherits and must
not keep.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import signal
import sys
from typing import NamedTuple, NoReturn

from torpor_protocol.config import EngineConfig, RankAssignment
from torpor_protocol.rpc import RankKeys
from torpor_worker import rank
from torpor_worker.processes import die_with_parent

log = logging.getLogger(__name__)
_FAILED = 1


class Launch(NamedTuple):
    endpoint: str
    config: EngineConfig
    assignment: RankAssignment
    keys: RankKeys
    threads: int

    @property
    def rank(self) -> int:
        return self.assignment.rank


def main(launch: Launch, parent: int, output: int) -> NoReturn:
    """Never returns into the fork server's loop, whatever happens."""
    status = _FAILED
    try:
        _leave_parent(parent, output)
        _limit_threads(launch.threads)
        status = rank.run(launch.endpoint, launch.config, launch.assignment, launch.keys)
    except BaseException:
        log.exception("Rank %d failed outside of a call.", launch.rank)
    finally:
        # No interpreter shutdown: threads of torch or gloo may never end by themselves.
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _leave_parent(parent: int, output: int) -> None:
    die_with_parent(parent)
    os.dup2(output, 1)
    os.dup2(output, 2)
    # The parent's pipes, pidfds and the other ranks' logs.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Ctrl-C reaches the whole process group; the engine drains first and then ends its ranks.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    faulthandler.enable()


def _limit_threads(threads: int) -> None:
    """For libraries loaded from now on by the environment, for a loaded torch by itself."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)
