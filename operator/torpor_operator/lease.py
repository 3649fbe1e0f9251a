"""The guard against a second operator: a Lease that one process holds.

Idle must mean zero writes, so the holder does not renew for renewal's sake. It reads the Lease; a
newcomer writes its challenge into it; the holder answers by a renewal, or is dead and loses it. A
holder that cannot read the Lease for a while stops before a newcomer's patience can have ended. No
clock is compared between machines: each side measures its own waiting.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

from torpor_operator.cluster_api import ClusterError, Conflict, LeaseStore
from torpor_operator.model import Manifest
from torpor_protocol.errors import TorporError

LEASE_NAME: Final = "torpor-operator"
CHALLENGE: Final = "torpor.dev/challenger"
# Seconds. The holder looks often enough to answer a challenge in time, and gives up earlier than a
# newcomer takes over.
POLL: Final = 3.0
GIVE_UP: Final = 12.0
PATIENCE: Final = 18.0
LONGEST_WAIT: Final = 60.0

logger = logging.getLogger(__name__)


class LeaseLost(TorporError):
    """Another operator holds the Lease, or nobody can tell."""


class LeaseGuard:
    """``acquire``, then ``hold`` until it raises, then ``release``.

    ``identity``: of this process; a restarted container of one pod keeps it, and goes on at once.
    ``clock`` is monotonic."""

    def __init__(
        self,
        store: LeaseStore,
        identity: str,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._identity = identity
        self._clock = clock
        self._sleep = sleep

    async def acquire(self) -> None:
        """Raises LeaseLost when another operator is alive, ClusterError when the API is not."""
        started = self._clock()
        challenged: tuple[str, str] | None = None
        since = started
        while True:
            lease = await self._store.read()
            holder = _holder(lease)
            if holder in {"", self._identity}:
                if await self._take(lease):
                    return
            elif lease is not None and challenged == (holder, _renewed(lease)):
                if self._clock() - since >= PATIENCE and await self._take(lease):
                    logger.warning("The operator %s did not answer; its Lease was taken.", holder)
                    return
            elif lease is not None:
                self._check_patience(started, holder)
                since = self._clock()
                challenged = (holder, _renewed(lease)) if await self._challenge(lease) else None
            await self._sleep(POLL)

    def _check_patience(self, started: float, holder: str) -> None:
        if self._clock() - started >= LONGEST_WAIT:
            raise LeaseLost(
                f"Another operator, {holder}, holds the Lease {LEASE_NAME} and is alive.",
                "Run one operator only: end that one, or this one.",
            )

    async def hold(self) -> None:
        """Returns never. Raises LeaseLost."""
        seen = self._clock()
        while True:
            await self._sleep(POLL)
            try:
                lease = await self._store.read()
                await self._answer(lease)
                seen = self._clock()
            except ClusterError as error:
                logger.warning("The Lease could not be confirmed: %s", error)
                if self._clock() - seen >= GIVE_UP:
                    raise LeaseLost(f"The Lease could not be confirmed: {error}") from error

    async def release(self) -> None:
        """Lets the next operator start at once."""
        try:
            lease = await self._store.read()
            if lease is not None and _holder(lease) == self._identity:
                await self._store.replace(lease | {"spec": _spec("")})
        except ClusterError as error:
            logger.info("The Lease was not released: %s", error)

    async def _answer(self, lease: Manifest | None) -> None:
        holder = _holder(lease)
        if lease is not None and holder and holder != self._identity:
            raise LeaseLost(f"The operator {holder} holds the Lease {LEASE_NAME} now.")
        challenger = _annotations(lease).get(CHALLENGE, "")
        if (challenger or not holder) and await self._take(lease):
            logger.info("Answered the challenge of %s.", challenger or "an empty Lease")

    async def _take(self, lease: Manifest | None) -> bool:
        spec = _spec(self._identity)
        try:
            if lease is None:
                await self._store.create(spec)
            else:
                kept = {k: v for k, v in _annotations(lease).items() if k != CHALLENGE}
                metadata = lease["metadata"] | {"annotations": kept}
                await self._store.replace(lease | {"metadata": metadata, "spec": spec})
        except Conflict:
            return False
        return True

    async def _challenge(self, lease: Manifest) -> bool:
        annotations = _annotations(lease) | {CHALLENGE: self._identity}
        metadata = lease["metadata"] | {"annotations": annotations}
        try:
            await self._store.replace(lease | {"metadata": metadata})
        except Conflict:
            return False
        logger.info("The operator %s holds the Lease; asked whether it lives.", _holder(lease))
        return True


def _holder(lease: Manifest | None) -> str:
    return str(((lease or {}).get("spec") or {}).get("holderIdentity") or "")


def _renewed(lease: Manifest) -> str:
    return str((lease.get("spec") or {}).get("renewTime") or "")


def _annotations(lease: Manifest | None) -> dict[str, str]:
    return dict(((lease or {}).get("metadata") or {}).get("annotations") or {})


def _spec(identity: str) -> Manifest:
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    spec: Manifest = {"leaseDurationSeconds": int(PATIENCE), "renewTime": now}
    return spec | ({"holderIdentity": identity, "acquireTime": now} if identity else {})
