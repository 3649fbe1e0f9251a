"""A start in a cluster that is not ready yet: what fails for a moment is tried again.

After an installation the API server may not serve the new definition yet, and a new pod may not
reach the API server at once. Ending for it would show a restart to everybody who installs us.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from torpor_operator.cluster_api import ClusterError

# Seconds. The startup probe allows 120.
LONGEST: Final = 30.0
POLL: Final = 1.0

T = TypeVar("T")

logger = logging.getLogger(__name__)


async def patiently(
    work: Callable[[], Awaitable[T]],
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> T:
    """What ``work`` gives. Raises its ClusterError when it stays, and a refusal at once."""
    end = clock() + LONGEST
    while True:
        try:
            return await work()
        except ClusterError as error:
            if error.refusal or clock() >= end:
                raise
            logger.info("The API server is not ready, trying again: %s", error)
        await sleep(POLL)
