"""Write tables into RESULTS.md between markers, and leave what people wrote around them alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the first column is text, the others are figures."""
    rules = ["---", *("---:" for _ in head[1:])]
    return "\n".join(_row(cells) for cells in [head, rules, *rows])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def markers(name: str) -> tuple[str, str]:
    return f"<!-- measured: {name} -->", f"<!-- end: {name} -->"


def with_section(page: str, name: str, text: str) -> str:
    """The page with ``text`` between the markers of ``name``, which are appended when missing."""
    first, last = markers(name)
    section = f"{first}\n{text.strip()}\n{last}"
    pattern = re.compile(re.escape(first) + ".*?" + re.escape(last), re.DOTALL)
    if pattern.search(page):
        return pattern.sub(lambda _: section, page, count=1)
    return f"{page.rstrip()}\n\n{section}\n".lstrip()


def write_section(path: Path, name: str, text: str) -> None:
    page = path.read_text() if path.is_file() else ""
    path.write_text(with_section(page, name, text))
