"""Entry of the core process: settings from standard input, the core loop, an orderly end.

The API process is its parent. When that is gone, by whatever signal, the core ends its workers and
removes the run directory: nobody else would.
"""

from __future__ import annotations

import ctypes
import logging
import os
import shutil
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import msgspec

from torpor_engine.core.inbox import Inbox
from torpor_engine.core.loop import Core
from torpor_engine.core.settings import CoreSettings
from torpor_engine.link import FrameSocket
from torpor_protocol.errors import TorporError
from torpor_protocol.logs import start_logging

log = logging.getLogger(__name__)

ORPHAN_SECONDS = 15.0
_PR_SET_NAME = 15


def main() -> int:
    start_logging("core")
    settings = msgspec.json.decode(sys.stdin.readline(), type=CoreSettings)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_NAME, b"torpor-core", 0, 0, 0)
    _watch_parent(Path(settings.run_dir))
    link = FrameSocket(socket.socket(fileno=settings.fd))
    try:
        _run(Core(settings, Inbox(link)))
    except TorporError as error:
        log.error("%s", error)
        return error.exit_code
    finally:
        if link.closed:
            shutil.rmtree(settings.run_dir, ignore_errors=True)
    return 0


def _run(core: Core) -> None:
    signal.signal(signal.SIGTERM, lambda *_: core.stop())
    try:
        core.run()
    except TorporError as error:
        core.publish_failure(error)
        raise
    finally:
        core.close()


def _watch_parent(run_dir: Path) -> None:
    """If the parent is gone and the loop, stuck in a call, does not notice: end all the same."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        time.sleep(ORPHAN_SECONDS)
        shutil.rmtree(run_dir, ignore_errors=True)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
