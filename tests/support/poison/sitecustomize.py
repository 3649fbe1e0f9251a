"""Makes unpickling fail in every engine and worker process that a test starts.

Python imports this module by itself in every process that has its folder on PYTHONPATH; conftest
puts it there. Processes of other programs are left alone.

Pickler and ``dumps`` stay: they read nothing that anybody sent. The two Unpicklers stay classes,
with all that is theirs but ``load``, because torch and aiohttp derive from them at import.
"""

import _pickle
import atexit
import os
import pickle
import sys
from typing import Any, NoReturn

PRODUCT = ("torpor_engine", "torpor_worker")
# Names a folder: each process tries all ways of unpickling when it ends and leaves the outcome.
WITNESS = "POISON_WITNESS"


def poisoned(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError("something was unpickled in a process of Torpor")


def testify(folder: str) -> None:
    # Beside the tests' helpers, whose folder is on the path only of who is asked to testify.
    from unpickling import write_outcomes

    write_outcomes(folder)


if any(word.startswith(PRODUCT) for word in sys.orig_argv):
    methods = {"__init__": poisoned, "load": poisoned}
    c_unpickler = type("Unpickler", (_pickle.Unpickler,), methods)
    plain_unpickler = type("_Unpickler", (pickle._Unpickler,), methods)
    for module in (pickle, _pickle):
        for name, value in {
            "load": poisoned,
            "loads": poisoned,
            "Unpickler": c_unpickler,
        }.items():
            setattr(module, name, value)
    # Python's own slow twins, ``pickle._load`` and ``_loads``, look it up here.
    setattr(pickle, "_Unpickler", plain_unpickler)  # noqa: B010 - mypy knows it as a type
    if WITNESS in os.environ:
        atexit.register(testify, os.environ[WITNESS])
