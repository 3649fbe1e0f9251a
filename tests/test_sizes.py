"""The size check finds what it must find; `make check` runs it on the tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from check_sizes import LONG_FUNCTION, MAX_COLUMNS, MAX_LINES, MEDIAN_LINES, main


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def function(name: str, lines: int) -> str:
    return f"def {name}() -> None:\n" + "    pass\n" * (lines - 1)


def test_small_files_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "engine/torpor_engine/small.py", function("short", LONG_FUNCTION - 1))
    assert main(tmp_path) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("folder", ["worker/torpor_worker", "tests/worker", "scripts"])
def test_long_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], folder: str
) -> None:
    write(tmp_path, "engine/a.py", "x = 1\n")
    write(tmp_path, "engine/b.py", "x = 1\n")
    write(tmp_path, f"{folder}/long.py", "x = 1\n" * (MAX_LINES + 1))
    assert main(tmp_path) == 1
    assert f"{folder}/long.py: {MAX_LINES + 1} lines" in capsys.readouterr().err


def test_wide_line_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "protocol/wide.py", "x = 1\n# " + "w" * MAX_COLUMNS + "\n")
    assert main(tmp_path) == 1
    assert "protocol/wide.py:2: " in capsys.readouterr().err


def test_median_ignores_empty_files_and_other_folders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "engine/big.py", "x = 1\n" * (MEDIAN_LINES + 1))
    for number in range(5):
        write(tmp_path, f"engine/empty{number}.py", "")
        write(tmp_path, f"tests/test_{number}.py", "x = 1\n")
    assert main(tmp_path) == 1
    assert f"median of 1 files is {MEDIAN_LINES + 1} lines" in capsys.readouterr().err


@pytest.mark.parametrize(("short", "status"), [(9, 0), (8, 1)])
def test_a_tenth_of_the_functions_may_be_long(tmp_path: Path, short: int, status: int) -> None:
    functions = [function("long", LONG_FUNCTION)]
    functions += [function(f"short{number}", 2) for number in range(short)]
    write(tmp_path, "operator/functions.py", "\n\n".join(functions))
    assert main(tmp_path) == status
