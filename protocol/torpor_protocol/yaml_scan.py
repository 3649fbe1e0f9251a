"""Counting what a YAML file would become before any object is built.

The parser's events come one by one. An alias counts as much as what it stands for, so a "billion
laughs" file is refused after a few kilobytes of work. Tags, repeated keys and keys that are not
texts are refused too: a manifest is JSON in another notation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from yaml.events import (
    AliasEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
)

from torpor_protocol.errors import ConfigError
from torpor_protocol.words import shorten

MAX_DEPTH: Final = 32
MAX_NODES: Final = 50_000
MAX_DOCUMENTS: Final = 100
_STANDARD_TAG: Final = "tag:yaml.org,2002:"


class YamlRefused(ConfigError):
    """``cause`` goes on after the name of the file: "is not ..."."""


@dataclass
class _Frame:
    """An open list or map: nodes and height below it so far, and the keys of a map."""

    anchor: str | None
    is_map: bool
    size: int = 1
    height: int = 1
    children: int = 0
    keys: set[str] = field(default_factory=set)


class Scan:
    def __init__(self) -> None:
        self.open: list[_Frame] = []
        self.anchors: dict[str, tuple[int, int]] = {}  # name -> size and height of what it marks
        self.documents = 0
        self.total = 0

    def take(self, event: Event) -> None:
        line = event.start_mark.line + 1 if event.start_mark else 0
        if isinstance(event, DocumentStartEvent):
            self.anchors.clear()
            self.documents += 1
            if self.documents > MAX_DOCUMENTS:
                raise YamlRefused(
                    f"holds more than {MAX_DOCUMENTS} documents", "Give one InferenceDeployment."
                )
        elif isinstance(event, AliasEvent):
            self._alias(event, line)
        elif isinstance(event, NodeEvent):
            self._node(event, line)
        elif self.open and not isinstance(event, DocumentStartEvent):
            self._close()

    def _alias(self, event: AliasEvent, line: int) -> None:
        if event.anchor is None or event.anchor not in self.anchors:
            raise YamlRefused(
                f"refers at line {line} to {shorten(event.anchor)}, which is not complete there",
                "Write the part out instead of referring to it.",
            )
        self._refuse_odd_key(line)
        self._add(*self.anchors[event.anchor])

    def _node(self, event: NodeEvent, line: int) -> None:
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise YamlRefused(
                f"has the tag {shorten(tag.replace(_STANDARD_TAG, '!!'))} at line {line}",
                "Remove the tag; quotes make a text.",
            )
        if isinstance(event, ScalarEvent):
            self._key(event.value, line)
            self._add(1, 0)
            self._mark(event.anchor, 1, 0)
        elif isinstance(event, CollectionStartEvent):
            self._refuse_odd_key(line)
            self.open.append(_Frame(event.anchor, isinstance(event, MappingStartEvent)))
            self._refuse_depth(len(self.open))

    def _key(self, text: str, line: int) -> None:
        frame = self.open[-1] if self.open else None
        if frame is None or not frame.is_map or frame.children % 2:
            return
        if text in frame.keys:
            raise YamlRefused(
                f"has the key {shorten(text)} twice in one map, again at line {line}", "Keep one."
            )
        frame.keys.add(text)

    def _refuse_odd_key(self, line: int) -> None:
        frame = self.open[-1] if self.open else None
        if frame is not None and frame.is_map and frame.children % 2 == 0:
            raise YamlRefused(
                f"has a key at line {line} that is not a plain text", "Write the key as a text."
            )

    def _refuse_depth(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise YamlRefused(
                f"is nested deeper than {MAX_DEPTH} levels", "Give a manifest without such nesting."
            )

    def _add(self, size: int, height: int) -> None:
        self._refuse_depth(len(self.open) + height)
        self.total += size
        if self.total > MAX_NODES:
            raise YamlRefused(
                f"holds more than {MAX_NODES} values once its references are written out",
                "Give a manifest with one InferenceDeployment.",
            )
        if self.open:
            frame = self.open[-1]
            frame.size += size
            frame.height = max(frame.height, height + 1)
            frame.children += 1

    def _close(self) -> None:
        frame = self.open.pop()
        self._mark(frame.anchor, frame.size, frame.height)
        self.total -= frame.size - 1  # counted again, as a whole, where it is added
        self._add(frame.size, frame.height)

    def _mark(self, anchor: str | None, size: int, height: int) -> None:
        if anchor is not None:
            self.anchors[anchor] = (size, height)
