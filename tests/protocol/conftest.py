"""The wire in both its forms."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from wire import Wire


@pytest.fixture(params=["tcp", "ipc"])
def wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    made = Wire(request.param)
    yield made
    made.close()


@pytest.fixture
def tcp_wire() -> Iterator[Wire]:
    made = Wire("tcp")
    yield made
    made.close()
