"""What the aliases of a file stand for, counted before a parser writes them out.

The fast parser copies a node for each alias: nine levels of nine aliases are 0.4 billion nodes in
300 bytes. The parser that has events counts first. Documents are counted one by one, as an alias
reaches no further, and only those that have any. Where the two parsers do not agree about one of
those, it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from reconciler.source import places
from reconciler.source.places import Place
from reconciler.source.tree import MAX_FILE_BYTES

MAX_NODES = 50_000  # with aliases written out, in the documents of a file that have any
MAX_LENGTH = MAX_FILE_BYTES  # of their texts

_ALIAS = re.compile(r"\*[\w-]")  # or something like one
_ANCHOR = re.compile(r"&[\w-]")

_TOO_LARGE = (
    f"its aliases stand for more than {MAX_NODES:,} values, or {MAX_LENGTH // 1024} KiB of text;"
    " write out what you need"
)
_NOT_COUNTED = (
    "not valid YAML, or a text that not all parsers take, such as a URL between { } without quotes;"
    " a document with aliases has to be plain to all: mend or quote this"
)


class AliasError(Exception):
    """Aliases that are not written out, with the rule that they break."""

    def __init__(self, rule: str, message: str, place: Place) -> None:
        super().__init__(message)
        self.rule, self.message, self.place = rule, message, place


def counted(text: str) -> Mapping[int, int]:
    """How many values each document with an alias has when all is written out. Raises
    AliasError."""
    if not (_ALIAS.search(text) and _ANCHOR.search(text)):
        return {}
    sizes: dict[int, int] = {}
    count = _Count()
    for index, segment in enumerate(places.segments(text)):
        if _ALIAS.search(segment.text):
            before = count.nodes
            count.document(segment)
            sizes[index] = count.nodes - before
    return sizes


def check_agreement(text: str, counts: Mapping[int, int], loaded: Sequence[Any]) -> None:
    """Raises AliasError where another parser made other values of the documents that were
    counted."""
    for index, nodes in counts.items():
        if index >= len(loaded) or _nodes(loaded[index]) != nodes:
            line = places.content_lines(text)[index]
            raise AliasError("YamlSyntax", _NOT_COUNTED, Place(line, 1))


class _Size(NamedTuple):
    """The size of a node with every alias in it written out. `length`: characters of its
    scalars."""

    nodes: int
    length: int


class _Count:
    """The values so far, in the documents of one file that have aliases."""

    def __init__(self) -> None:
        self.nodes = self.length = 0

    def document(self, segment: places.Segment) -> None:
        sizes: dict[str, _Size] = {}  # by anchor
        open_nodes: list[tuple[str | None, _Size]] = []  # its anchor, the total when it began
        for event in places.events(segment):
            match event.kind:
                case "Scalar":
                    self._add(_Size(1, len(event.value or "")))
                    if event.anchor:
                        sizes[event.anchor] = _Size(1, len(event.value or ""))
                case "MappingStart" | "SequenceStart":
                    open_nodes.append((event.anchor, _Size(self.nodes, self.length)))
                    self._add(_Size(1, 0))
                    sizes.pop(event.anchor or "", None)
                case "MappingEnd" | "SequenceEnd":
                    anchor, before = open_nodes.pop()
                    if anchor:
                        sizes[anchor] = _Size(
                            self.nodes - before.nodes, self.length - before.length
                        )
                case "Alias":
                    self._add(self._meant(event, sizes, open_nodes))
                case "Error":
                    raise AliasError("YamlSyntax", _NOT_COUNTED, event.place)
            if self.nodes > MAX_NODES or self.length > MAX_LENGTH:
                raise AliasError("FileUnreadable", _TOO_LARGE, event.place)

    def _add(self, its: _Size) -> None:
        self.nodes, self.length = self.nodes + its.nodes, self.length + its.length

    @staticmethod
    def _meant(
        event: places.YamlEvent, sizes: dict[str, _Size], open_nodes: list[tuple[str | None, _Size]]
    ) -> _Size:
        size = sizes.get(event.anchor or "")
        if size is None and any(anchor == event.anchor for anchor, _ in open_nodes):
            raise AliasError("FileUnreadable", _TOO_LARGE, event.place)  # it contains itself
        if size is None:
            message = (
                f"not valid YAML: unknown anchor {event.anchor}; define it with & before it in the"
                " same document, or quote the value that begins with *"
            )
            raise AliasError("YamlSyntax", message, event.place)
        return size


def _nodes(value: object) -> int:
    """How many values there are, keys among them."""
    level, count = [value], 0
    while level:
        count += len(level)
        below: list[object] = []
        for item in level:
            if isinstance(item, dict):
                count += len(item)
                below += item.values()
            elif isinstance(item, list):
                below += item
        level = below
    return count
