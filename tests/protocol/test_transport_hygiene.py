"""No byte that crossed a process boundary is unpickled, and nothing here could do it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import torpor_protocol

ROOM = Path(torpor_protocol.__file__).parent
SOURCES = sorted(ROOM.rglob("*.py"))
MODULES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "jsonpickle"}
NAMES = {
    "recv_pyobj",
    "send_pyobj",
    "recv_serialized",
    "send_serialized",
    "broadcast_object_list",
    "all_gather_object",
    "eval",
    "exec",
    "literal_eval",
}


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def named(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name):
            yield node.id


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOM)))
def test_nothing_in_protocol_unpickles_or_evaluates(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert not MODULES & set(imported(tree))
    assert not NAMES & set(named(tree))


def test_the_search_finds_what_it_looks_for() -> None:
    tree = ast.parse("import pickle\nfrom dill import loads\nsocket.recv_pyobj()\neval('1')")
    assert MODULES & set(imported(tree)) == {"pickle", "dill"}
    assert NAMES & set(named(tree)) == {"recv_pyobj", "eval"}
    assert len(SOURCES) > 20
