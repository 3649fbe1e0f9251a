"""Makes unpickling fail in every engine and worker process that a test starts.

Python imports this module by itself in every process that has its folder on PYTHONPATH; conftest
puts it there. Processes of other programs are left alone.
"""

import pickle
import sys
from typing import Any, NoReturn

PRODUCT = ("torpor_engine", "torpor_worker")


def poisoned(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError("something was unpickled in a process of Torpor")


if any(word.startswith(PRODUCT) for word in sys.orig_argv):
    pickle.loads = pickle.load = poisoned
