"""From a name to a platform; the code of the others is never imported."""

from __future__ import annotations

import importlib

from torpor_protocol.errors import ConfigError
from torpor_worker.platforms.base import Platform

PLATFORMS = {
    "cpu": "torpor_worker.platforms.cpu:CpuPlatform",
    "cuda": "torpor_worker.platforms.cuda:CudaPlatform",
}


def select_platform(name: str) -> Platform:
    """Raises ConfigError for a name that is not known."""
    if name not in PLATFORMS:
        raise ConfigError(
            f"There is no platform {name!r}.", f"Choose one of {', '.join(sorted(PLATFORMS))}."
        )
    module, _, attribute = PLATFORMS[name].partition(":")
    platform = getattr(importlib.import_module(module), attribute)()
    if not isinstance(platform, Platform):
        raise TypeError(f"{PLATFORMS[name]} is not a Platform")
    return platform
