"""The page for people in trouble knows every reason that they may be shown, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from torpor_protocol.api import Reason

PAGE = Path(__file__).resolve().parents[2] / "docs/troubleshooting.md"


def test_every_reason_is_explained() -> None:
    known = set(get_args(get_args(Reason)[0]))
    rows = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    explained = {word for row in rows for word in re.findall("`([A-Z][A-Za-z]+)`", row)}
    assert explained == known
