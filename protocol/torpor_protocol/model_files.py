"""Whether this process may read a model, asked before libraries that tell it in words of their own.

safetensors says "no such file" of a file whose owner alone may read it, and a model that root
downloaded is often such a file in a pod that is not root.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from torpor_protocol.errors import ModelError


def check_readable(path: Path) -> None:
    """Nothing is said of a file or folder that is not there. Raises ModelError."""
    try:
        folder = stat.S_ISDIR(path.stat().st_mode)
        needed = os.R_OK | (os.X_OK if folder else 0)
        readable = os.access(path, needed, effective_ids=True)
    except PermissionError:
        readable = False
    except OSError:
        return
    if not readable:
        raise ModelError(
            f"{path} may not be read by user {os.geteuid()}: permission denied.",
            "Make the model readable for everybody (chmod -R a+rX on its folder).",
        )
