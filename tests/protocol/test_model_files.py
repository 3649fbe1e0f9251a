"""A model that this process may not read is told as that."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from torpor_protocol.errors import ModelError
from torpor_protocol.model_files import check_readable

NOBODY = 65_534


@contextmanager
def without_privilege() -> Iterator[None]:
    """Root may read everything."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if user == 0:
            os.seteuid(user)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"x")
    yield folder
    folder.chmod(0o755)


def test_a_readable_file_and_folder(folder: Path) -> None:
    check_readable(folder)
    check_readable(folder / "model.safetensors")


def test_what_is_not_there_is_not_for_this_check(folder: Path) -> None:
    check_readable(folder / "missing")
    check_readable(folder / "model.safetensors" / "missing")


@pytest.mark.parametrize("hidden", ["model.safetensors", "."])
def test_denied(folder: Path, hidden: str) -> None:
    (folder / hidden).chmod(0)
    with without_privilege(), pytest.raises(ModelError, match="permission denied") as raised:
        check_readable(folder / "model.safetensors")
    assert "chmod -R a+rX" in raised.value.fix
    assert raised.value.exit_code == 3
