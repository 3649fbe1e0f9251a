"""Every process starts logging in one way, and a level that nobody knows is told as such."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from torpor_protocol.logs import LEVEL_VARIABLE

LOG = """
import logging
from torpor_protocol.logs import start_logging
start_logging("core")
logging.getLogger("a.b").debug("small")
logging.getLogger("a.b").warning("great")
"""


def run(*arguments: str, level: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {LEVEL_VARIABLE: level}
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_lines_name_time_level_and_process() -> None:
    lines = run("-c", LOG, level="debug").stderr.splitlines()
    assert [line.split(" ", 2)[2] for line in lines] == ["DEBUG core: small", "WARNING core: great"]
    assert run("-c", LOG, level="error").stderr == ""


@pytest.mark.parametrize("module", ["torpor_engine", "torpor_worker"])
def test_an_unknown_level_is_an_error_of_the_user(module: str) -> None:
    done = run("-m", module, "serve", level="loud")
    assert done.returncode == 2
    assert f"{LEVEL_VARIABLE} is 'LOUD', which is no level." in done.stderr
    assert "Choose one of NOTSET, DEBUG, INFO" in done.stderr
    assert "Traceback" not in done.stderr
