"""How every process of Torpor logs: to standard error, from the level of one variable on."""

from __future__ import annotations

import logging
import os
import sys

from torpor_protocol.errors import ConfigError

LEVEL_VARIABLE = "TORPOR_LOG_LEVEL"


def chosen_level() -> int:
    """The level that the variable names, INFO where it is empty. Raises ConfigError for another."""
    level = (os.environ.get(LEVEL_VARIABLE) or "INFO").upper()
    known = logging.getLevelNamesMapping()
    if level not in known:
        raise ConfigError(
            f"{LEVEL_VARIABLE} is {level[:40]!r}, which is no level.",
            f"Choose one of {', '.join(sorted(known, key=known.__getitem__))}.",
        )
    return known[level]


def start_logging(who: str = "") -> None:
    """``who``: the process, before each of its lines. Raises ConfigError for an unknown level."""
    prefix = f"{who}: " if who else ""
    logging.basicConfig(
        level=chosen_level(),
        format=f"%(asctime)s %(levelname)s {prefix}%(message)s",
        stream=sys.stderr,
    )
