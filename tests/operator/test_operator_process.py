"""What surrounds the work: which events lead to it, the probe, the logs, the metrics' port."""

from __future__ import annotations

import asyncio
import json
import logging
import sys

import aiohttp
import kopf
import pytest

from memory_cluster import UID, deployment
from torpor_operator.events import event_object
from torpor_operator.handlers import CHILDREN, LONGEST_DUE, check_age, informer_settings, owner_key
from torpor_operator.json_logs import JsonFormatter
from torpor_operator.metrics import Metrics, serve_metrics
from torpor_operator.model import Event
from torpor_operator.names import child_labels
from torpor_operator.workqueue import Key


def test_a_child_leads_to_its_deployment_and_a_stranger_to_none() -> None:
    assert owner_key("models", child_labels("demo")) == Key("models", "demo")
    assert owner_key("models", {"app": "demo"}) is None
    assert owner_key(None, child_labels("demo")) is None


def test_only_our_own_children_are_watched_and_nothing_is_written_by_the_informer() -> None:
    settings = informer_settings()
    selectors = dict(settings.watching.label_selectors)
    assert len(selectors) == len(CHILDREN)
    assert set(selectors.values()) == {"app.kubernetes.io/managed-by=torpor-operator"}
    assert settings.peering.standalone
    assert settings.scanning.disabled
    assert not settings.posting.enabled
    assert settings.queueing.worker_limit is None


def test_the_probe_fails_at_once_when_work_is_long_overdue() -> None:
    assert check_age(LONGEST_DUE) == LONGEST_DUE
    with pytest.raises(kopf.PermanentError, match="due for"):
        check_age(LONGEST_DUE + 1.0)


def test_a_log_line_is_one_object_also_with_a_traceback() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.LogRecord(
            "torpor", logging.ERROR, __file__, 1, "it %s\nhere", ("broke",), sys.exc_info()
        )
    line = JsonFormatter().format(record)
    assert "\n" not in line
    told = json.loads(line)
    assert told["message"] == "it broke\nhere"
    assert told["level"] == "ERROR"
    assert told["time"].endswith("Z")
    assert "ValueError: two" in told["traceback"]


def test_the_metrics_are_served() -> None:
    async def run() -> str:
        metrics = Metrics()
        metrics.watch_queue(lambda: 3.0, lambda: 1.5)
        metrics.reconciled("ok", 0.2)
        metrics.wrote("create", "Pod")
        metrics.called("sleep", "error", 2.0)
        server = await serve_metrics(metrics, "127.0.0.1", 0)
        try:
            host, port = server.addresses[0]
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://{host}:{port}/metrics") as answer,
            ):
                return await answer.text()
        finally:
            await server.cleanup()

    text = asyncio.run(run())
    assert 'torpor_operator_reconciles_total{result="ok"} 1.0' in text
    assert 'torpor_operator_writes_total{kind="Pod",verb="create"} 1.0' in text
    assert 'torpor_operator_engine_calls_total{result="error",verb="sleep"} 1.0' in text
    assert "torpor_operator_queue_depth 3.0" in text
    assert "torpor_operator_queue_oldest_seconds 1.5" in text


def test_an_event_names_its_deployment_and_fits() -> None:
    told = event_object(deployment(), Event("Warning", "RankLost", "ä" * 4000), 1769860800.0)
    assert told["involvedObject"]["uid"] == UID
    assert told["firstTimestamp"] == "2026-01-31T12:00:00Z"
    assert len(told["message"].encode()) <= 1024
    other = event_object(deployment(), Event("Warning", "RankLost", "ä" * 4000), 1769860801.0)
    assert told["metadata"]["name"] != other["metadata"]["name"]
