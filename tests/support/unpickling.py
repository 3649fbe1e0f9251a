"""All the ways in which the standard library turns bytes into objects by pickle."""

from __future__ import annotations

import _pickle
import io
import json
import os
import pickle
import sys
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

DATA = pickle.dumps(1)
WAYS: dict[str, Callable[[], object]] = {
    "pickle.loads": lambda: pickle.loads(DATA),
    "pickle.load": lambda: pickle.load(io.BytesIO(DATA)),
    "pickle.Unpickler": lambda: pickle.Unpickler(io.BytesIO(DATA)).load(),
    "pickle._Unpickler": lambda: pickle._Unpickler(io.BytesIO(DATA)).load(),
    "a class of its own": lambda: _Derived().load(),
    "_pickle.loads": lambda: _pickle.loads(DATA),
    "_pickle.load": lambda: _pickle.load(io.BytesIO(DATA)),
    "_pickle.Unpickler": lambda: _pickle.Unpickler(io.BytesIO(DATA)).load(),
    "multiprocessing": lambda: ForkingPickler.loads(DATA),
}


class _Derived(pickle.Unpickler):
    def __init__(self) -> None:
        super().__init__(io.BytesIO(DATA))


def outcome(way: str) -> str:
    """What it gives, or the sentence of the error that it ends with."""
    try:
        return repr(WAYS[way]())
    except RuntimeError as error:
        return str(error)


def write_outcomes(folder: str) -> None:
    """A file of this process: its command line, and the outcome of every way."""
    found = {"argv": sys.orig_argv, "outcomes": {way: outcome(way) for way in WAYS}}
    Path(folder, f"{os.getpid()}.json").write_text(json.dumps(found))
