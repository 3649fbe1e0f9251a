"""How a process ended, in words."""

from __future__ import annotations

import signal


def how_it_ended(status: int) -> str:
    """``status``: an exit status, or minus the signal that killed the process."""
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
