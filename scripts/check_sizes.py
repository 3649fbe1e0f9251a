"""Hold the size limits of the house: short files, short lines, short functions.

A reader should find the one file that answers a question and take it in at once. The limits are
few and are checked, not advised: `make check` fails when one is broken and names the place.
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOMS = ("protocol", "engine", "worker", "operator")
OTHERS = ("scripts", "benchmarks", "tests")

MEDIAN_LINES = 150
MAX_LINES = 400
MAX_COLUMNS = 100
LONG_FUNCTION = 40
LONG_FUNCTION_SHARE = 0.10


@dataclass
class FileSize:
    """What is measured of one file: its lines, its wide lines, its functions with lengths."""

    path: Path
    lines: int
    wide: list[int] = field(default_factory=list)
    functions: list[tuple[str, int, int]] = field(default_factory=list)  # name, first line, length


def measure(path: Path) -> FileSize:
    """Measure one Python file."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    wide = [number for number, line in enumerate(lines, 1) if len(line) > MAX_COLUMNS]
    functions = [
        (node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1)
        for node in ast.walk(ast.parse(text, str(path)))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return FileSize(path, len(lines), wide, functions)


def python_files(root: Path, folders: Iterable[str]) -> Iterator[FileSize]:
    """Measure every non-empty Python file below the folders that exist."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            size = measure(path)
            if size.lines:  # an empty __init__.py says nothing and must not lower the median
                yield size


def median_problem(rooms: list[FileSize]) -> Iterator[str]:
    """The median length of the files of the four rooms is limited."""
    median = statistics.median([size.lines for size in rooms]) if rooms else 0
    if median > MEDIAN_LINES:
        yield f"median of {len(rooms)} files is {median:g} lines, limit {MEDIAN_LINES}"


def file_problems(sizes: list[FileSize]) -> Iterator[str]:
    """No file may be too long, no line too wide."""
    for size in sizes:
        if size.lines > MAX_LINES:
            yield f"{size.path}: {size.lines} lines, limit {MAX_LINES}"
        for number in size.wide:
            yield f"{size.path}:{number}: line is wider than {MAX_COLUMNS} columns"


def long_functions(sizes: list[FileSize]) -> list[str]:
    """Every function of LONG_FUNCTION lines or more, with its place."""
    return [
        f"{size.path}:{first}: {name} has {length} lines"
        for size in sizes
        for name, first, length in size.functions
        if length >= LONG_FUNCTION
    ]


def function_problem(rooms: list[FileSize]) -> Iterator[str]:
    """Few functions may be long: a share, because a long table or match is sometimes clearest."""
    total = sum(len(size.functions) for size in rooms)
    long = len(long_functions(rooms))
    if total and long / total > LONG_FUNCTION_SHARE:
        yield (
            f"{long} of {total} functions have {LONG_FUNCTION} lines or more, "
            f"limit {LONG_FUNCTION_SHARE:.0%}"
        )


def main(root: Path) -> int:
    """Report sizes and problems; return 1 if a limit is broken."""
    rooms = list(python_files(root, ROOMS))
    everything = rooms + list(python_files(root, OTHERS))
    problems = [*median_problem(rooms), *file_problems(everything), *function_problem(rooms)]
    median = statistics.median([size.lines for size in rooms]) if rooms else 0
    longest = max((size.lines for size in rooms), default=0)
    total = sum(len(size.functions) for size in rooms)
    print(f"rooms: {len(rooms)} files, median {median:g} lines, longest {longest}")
    print(f"rooms: {total} functions, {len(long_functions(rooms))} of {LONG_FUNCTION} or more:")
    for line in long_functions(rooms):
        print(f"  {line}")
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path()))
