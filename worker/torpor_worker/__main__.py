"""``python -m torpor_worker``: ``pod``, the first process of a worker pod, or ``supervisor``, the
same as the child of an engine on one machine.

``fork-server`` is what a supervisor starts for itself. Each is imported only when it is the one to
run, because the supervisor must not import torch and the fork server must.
"""

from __future__ import annotations

import os
import sys

from torpor_protocol.errors import ConfigError, TorporError
from torpor_protocol.limits import MAX_SETTINGS_BYTES
from torpor_protocol.logs import start_logging

_STDIN = 0


def main(arguments: list[str]) -> int:
    try:
        # Ranks are forked from the fork server and go on with its log.
        start_logging("worker" if arguments[:1] == ["fork-server"] else "supervisor")
        match arguments:
            case ["supervisor"]:
                return _supervisor()
            case ["pod"]:
                from torpor_worker.pod import run_pod

                return run_pod(os.environ)
            case ["fork-server", *rest]:
                from torpor_worker import forkserver

                return forkserver.main(rest)
            case _:
                raise ConfigError(
                    f"torpor_worker does not know {' '.join(arguments) or 'an empty command'!r}.",
                    "Run python -m torpor_worker pod, or supervisor.",
                )
    except TorporError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def _supervisor() -> int:
    from torpor_protocol.supervision import decode_settings
    from torpor_worker.supervisor import Supervisor

    settings = decode_settings(_read_line(_STDIN))
    Supervisor(settings, _STDIN).run()
    return 0


def _read_line(fd: int) -> bytes:
    """One line and nothing buffered behind it: the rest of the pipe is watched for its end."""
    line = b""
    while not line.endswith(b"\n") and len(line) < MAX_SETTINGS_BYTES:
        byte = os.read(fd, 1)
        if not byte:
            break
        line += byte
    return line


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
