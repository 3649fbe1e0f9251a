"""Where things lie: the checkout, the results, and what is kept outside of the checkout."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BENCHMARKS = ROOT / "benchmarks"
RESULTS = BENCHMARKS / "RESULTS.md"
DATA = BENCHMARKS / "data"
PEER_LISTS = BENCHMARKS / "peer_lists"

# Scripts and test helpers are no package; they are imported by their file names, as tests do.
HELPERS = (ROOT / "scripts", ROOT / "tests" / "support")


def allow_helpers() -> None:
    """Make ``make_model`` and ``tiny_models`` importable."""
    for folder in HELPERS:
        if str(folder) not in sys.path:
            sys.path.append(str(folder))


def cache_folder() -> Path:
    """The folder of everything that is made once: ``$TORPOR_CACHE``, else ~/.cache/torpor."""
    allow_helpers()
    from make_model import models_folder

    return models_folder().parent


def peers_folder() -> Path:
    return cache_folder() / "peers"
