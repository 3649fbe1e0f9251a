"""What the operator counts about itself, and the port where it is read."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_LONG_SECONDS = (0.05, 0.25, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class Metrics:
    """In a registry of its own, so that two in one process (tests) do not meet."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._reconciles = Counter(
            "torpor_operator_reconciles",
            "Finished reconciliations.",
            ["result"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "torpor_operator_reconcile_seconds",
            "Duration of a reconciliation.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._writes = Counter(
            "torpor_operator_writes",
            "Writes to the API server that succeeded.",
            ["verb", "kind"],
            registry=self.registry,
        )
        self._calls = Counter(
            "torpor_operator_engine_calls",
            "Calls of engines' admin ports.",
            ["verb", "result"],
            registry=self.registry,
        )
        self._call_seconds = Histogram(
            "torpor_operator_engine_call_seconds",
            "Duration of a call of an engine's admin port.",
            ["verb"],
            buckets=_LONG_SECONDS,
            registry=self.registry,
        )

    def reconciled(self, result: str, seconds: float) -> None:
        """``result``: ok, gone or error."""
        self._reconciles.labels(result).inc()
        self._seconds.observe(seconds)

    def wrote(self, verb: str, kind: str) -> None:
        self._writes.labels(verb, kind).inc()

    def called(self, verb: str, result: str, seconds: float) -> None:
        """``result``: ok or error."""
        self._calls.labels(verb, result).inc()
        self._call_seconds.labels(verb).observe(seconds)

    def watch_queue(self, depth: Callable[[], float], oldest: Callable[[], float]) -> None:
        Gauge(
            "torpor_operator_queue_depth",
            "Deployments that are due or worked on.",
            registry=self.registry,
        ).set_function(depth)
        Gauge(
            "torpor_operator_queue_oldest_seconds",
            "Time for which the oldest due deployment has waited.",
            registry=self.registry,
        ).set_function(oldest)


async def serve_metrics(metrics: Metrics, host: str, port: int) -> web.AppRunner:
    """``GET /metrics``. The caller cleans the runner up. Raises OSError."""

    async def show(_: web.Request) -> web.Response:
        body = generate_latest(metrics.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get("/metrics", show)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner
