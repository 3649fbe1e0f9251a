"""The engines' admin ports: their state, and the calls that put them to sleep and wake them.

``GET /state`` answers at once or not at all, so it is awaited while a deployment is worked on. A
sleep or a wake takes up to minutes: ``engine_calls`` runs those beside.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Final

import aiohttp

from torpor_operator.metrics import Metrics
from torpor_operator.model import EngineCall, EngineView
from torpor_operator.names import ADMIN_PORT
from torpor_protocol.errors import TorporError

# Seconds. A healthy engine answers /state within milliseconds, also while it loads.
_SHORT: Final = aiohttp.ClientTimeout(total=3, connect=2)
# A sleep that drains first may take as long as the longest drain; the state tells how it goes.
_LONG: Final = aiohttp.ClientTimeout(total=1800, connect=3)
_LARGEST: Final = 4 * 1024 * 1024  # bytes of an answer


class EngineError(TorporError):
    """The admin port could not be reached, or refused; the cause is its own sentence."""


class EngineClient:
    """``port`` differs from the admin port in tests only."""

    def __init__(self, metrics: Metrics, port: int = ADMIN_PORT) -> None:
        self._metrics = metrics
        self._port = port
        # Pods are reached directly, whatever proxy the environment names.
        self._session = aiohttp.ClientSession(trust_env=False)

    async def close(self) -> None:
        await self._session.close()

    async def view(self, ip: str, token: str, now: float) -> EngineView:
        """Never raises: an engine that does not answer is something to decide about."""
        try:
            state = await self._call("state", "GET", ip, "/state", token, {}, _SHORT)
        except EngineError as error:
            return EngineView(state=None, error=str(error), at=now)
        return EngineView(state=state, at=now)

    async def carry_out(self, call: EngineCall, token: str) -> None:
        """Raises EngineError. Answers when the engine has done it."""
        method, path, query = _request(call)
        limit = _SHORT if call.verb == "on_call" else _LONG
        await self._call(call.verb, method, call.ip, path, token, query, limit)

    async def _call(
        self,
        verb: str,
        method: str,
        ip: str,
        path: str,
        token: str,
        query: Mapping[str, str],
        limit: aiohttp.ClientTimeout,
    ) -> Mapping[str, Any]:
        started = time.monotonic()
        result = "error"
        try:
            answer = await self._ask(method, f"{self._root(ip)}{path}", token, query, limit)
            result = "ok"
            return answer
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            said = str(error) or type(error).__name__
            raise EngineError(f"The engine at {ip} does not answer {path}: {said}.") from error
        finally:
            self._metrics.called(verb, result, time.monotonic() - started)

    async def _ask(
        self,
        method: str,
        url: str,
        token: str,
        query: Mapping[str, str],
        limit: aiohttp.ClientTimeout,
    ) -> Mapping[str, Any]:
        headers = {"Authorization": f"Bearer {token}"}
        async with self._session.request(
            method, url, params=query, headers=headers, timeout=limit, allow_redirects=False
        ) as response:
            data = await _read(response.content)
            if response.status != 200:
                raise EngineError(_refusal(url, response.status, data))
        answer = json.loads(data)
        if not isinstance(answer, dict):
            raise ValueError("the answer is no object")
        return answer

    def _root(self, ip: str) -> str:
        host = f"[{ip}]" if ":" in ip else ip
        return f"http://{host}:{self._port}"


async def _read(content: aiohttp.StreamReader) -> bytes:
    """A pod is not trusted with the operator's memory."""
    data = bytearray()
    async for chunk in content.iter_any():
        data += chunk
        if len(data) > _LARGEST:
            raise ValueError(f"the answer is longer than {_LARGEST} bytes")
    return bytes(data)


def _request(call: EngineCall) -> tuple[str, str, dict[str, str]]:
    if call.verb == "sleep":
        return "POST", "/sleep", {"level": str(call.level), "mode": "wait"}
    if call.verb == "wake":
        return "POST", "/wake_up", {}
    return "PUT", "/on_call", {"value": "true" if call.value else "false"}


def _refusal(url: str, status: int, data: bytes) -> str:
    """The engine's own words where it has some: ``{"error": {"message": ...}}``."""
    try:
        said = json.loads(data)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        said = ""
    return str(said) or f"{url} was answered with status {status}."
