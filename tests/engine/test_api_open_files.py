"""Connections of clients never leave the admin port without a file to open."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from api_server import api_server
from fake_core import FakeCore
from raw_http import connected
from torpor_engine.api.open_files import SPARE, plan_room
from torpor_engine.api.settings import ApiSettings

ENDLESS = resource.RLIM_INFINITY
CONNECTIONS = 60


@pytest.mark.parametrize(
    ("soft", "hard", "plan"),
    [
        (ENDLESS, ENDLESS, (ENDLESS, 1000)),
        (10_000, ENDLESS, (10_000, 1000)),
        (1024, ENDLESS, (2000 + SPARE, 1000)),
        (1024, 524_288, (2000 + SPARE, 1000)),
        (1024, 1024, (1024, (1024 - SPARE) // 2)),
        (512, 1024, (1024, (1024 - SPARE) // 2)),
        (64, 64, (64, 1)),
    ],
)
def test_the_plan(soft: int, hard: int, plan: tuple[int, int]) -> None:
    assert plan_room(soft, hard, 1000) == plan


@pytest.fixture
def few_files() -> Iterator[int]:
    """So few that this many connections cannot be had under the soft limit."""
    before = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = len(list(Path("/proc/self/fd").iterdir())) + CONNECTIONS // 2
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    yield soft
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_admin_port_answers_while_clients_hold_all_connections(few_files: int) -> None:
    settings = ApiSettings(max_connections=CONNECTIONS)
    with api_server(FakeCore(), settings=settings) as server, contextlib.ExitStack() as stack:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert soft == 2 * CONNECTIONS + SPARE > few_files
        for _ in range(CONNECTIONS):
            stack.enter_context(connected(server.url))
        assert server.admin("GET", "/livez").status == 200
