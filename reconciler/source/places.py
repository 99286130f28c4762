"""The line and column of fields: a second parse of the few documents that need it.

The fast parser keeps no positions. This one runs the C event parser of ruamel.yaml over a file
(about 0.15 ms for one document) and builds only {field: place}.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from reconciler.api.plain_json import parse_json

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_$-]+")
_PART = re.compile(
    r"""\.?(?P<key>[^.\[\]"]+)|\[(?P<index>[0-9]+)\]|\[(?P<quoted>"(?:[^"\\]|\\.)*")\]"""
)
_LAST_PART = re.compile(r"""(\.?[^.\[\]"]+|\[[0-9]+\]|\["(?:[^"\\]|\\.)*"\])$""")
_MARKER = re.compile(r"^(---|\.\.\.)(?=[ \t\n]|\Z)", re.MULTILINE)  # as parsers have it
_LINE_KEY = re.compile(r"^([A-Za-z0-9_-]+):(?=\s)", re.MULTILINE)
_NO_CONTENT = re.compile(r"(?:[ \t\n\ufeff]++|#[^\n]*+|%[^\n]*+)*+")
_COLON_IN_WORD = re.compile(r"(?<=\w):(?=[^\s,\[\]{}])")
_OTHER_BREAKS = re.compile("\r\n?|[\x85\u2028\u2029]")  # line breaks for YAML 1.1 parsers


class Place(NamedTuple):
    """A position; line and column count from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A key that is set twice in one mapping: the position of the second, and the line of the
    first."""

    place: Place
    field: str
    first_line: int


class FieldPlaces(NamedTuple):
    """The positions of one document's fields, and its duplicate keys."""

    fields: Mapping[str, Place]
    duplicates: tuple[Duplicate, ...]

    def find(self, field: str) -> Place:
        """The position of a field, or of what contains it if the document does not have it."""
        while field not in self.fields and field:
            field = _LAST_PART.sub("", field) if _LAST_PART.search(field) else ""
        return self.fields.get(field, Place(1, 1))


def field_path(parts: Iterable[str | int]) -> str:
    """("spec", "models", 2, "name") -> `spec.models[2].name`; odd keys become `["a/b"]`."""
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN_KEY.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f"[{json.dumps(part, ensure_ascii=False)}]"
    return text


def field_parts(field: str) -> Iterator[str | int]:
    """What `field_path` joined."""
    for part in _PART.finditer(field):
        if part["index"]:
            yield int(part["index"])
        else:
            yield part["key"] or str(parse_json(part["quoted"].encode()))


def is_within(field: str, other: str) -> bool:
    """Whether a path is another one, or leads further into it."""
    return field == other or (field.startswith(other) and field[len(other)] in ".[")


def locate(text: str) -> tuple[FieldPlaces, ...]:
    """The positions in every document of a file, in order: as many as `content_lines` returns.

    Each document is parsed on its own, because the fast parser accepts some text that this one does
    not (`{a:# b}`). In such a document only keys at the start of a line have a position.
    """
    return tuple(_locate_one(segment) for segment in segments(text))


def content_lines(text: str) -> tuple[int, ...]:
    """The line on which each document's content begins, as in `locate`, without parsing.

    `---` or `...` at the start of a line ends anything before it, including a block scalar, so it
    is enough to search for the markers. A document without content has its marker's line.
    """
    return tuple(segment.line for segment in segments(text))


class Segment(NamedTuple):
    """One document in the text of a file: where its content begins."""

    line: int
    column: int  # of the first character; before it are spaces
    whole: str
    begin: int
    end: int

    @property
    def text(self) -> str:
        """Its content, with spaces in place of a marker on the same line: the columns are right."""
        return " " * (self.column - 1) + self.whole[self.begin : self.end]


def with_plain_breaks(text: str) -> str:
    """The text with every line break that YAML parsers count as `\n`."""
    has_others = "\r" in text or not text.isascii()
    return _OTHER_BREAKS.sub("\n", text) if has_others else text


def segments(text: str) -> list[Segment]:
    """The documents of a file, in order, without parsing."""
    text = with_plain_breaks(text)
    parts: list[Segment] = []
    begin, is_explicit = 0, False
    counted, line = 0, 1
    has_markers = "---" in text or "..." in text
    for match in (*(_MARKER.finditer(text) if has_markers else ()), None):
        end = match.start() if match else len(text)
        skipped = _NO_CONTENT.match(text, begin, end)
        first = skipped.end() if skipped else begin
        if first < end or is_explicit:
            place = first if first < end else begin
            line += text.count("\n", counted, place)
            counted = place
            column = place - text.rfind("\n", 0, place)
            parts.append(Segment(line, column, text, place, end))
        if match:
            begin, is_explicit = match.end(), match[1] == "---"
    return parts


def _locate_one(segment: Segment) -> FieldPlaces:
    walk, is_whole = _walked(segment)
    if not is_whole:  # such as a URL between { }, without quotes
        plain = _COLON_IN_WORD.sub("_", segment.whole[segment.begin : segment.end])
        again, is_whole = _walked(segment._replace(whole=plain, begin=0, end=len(plain)))
        walk = again if is_whole else walk
    walk.fields.setdefault("", Place(segment.line, segment.column))
    if not is_whole:
        text, counted, line = segment.whole, segment.begin, segment.line
        for key in _LINE_KEY.finditer(text, segment.begin, segment.end):
            line += text.count("\n", counted, key.start())
            counted = key.start()
            walk.fields.setdefault(key[1], Place(line, 1))
    return FieldPlaces(walk.fields, tuple(walk.duplicates))


@dataclass(slots=True)
class _Level:
    """One open collection: its field, and its next index or pending key."""

    field: str
    is_mapping: bool
    index: int = 0
    key: str | None = None


def _walked(segment: Segment) -> tuple[_EventWalk, bool]:
    """What could be read, and whether that is all."""
    walk = _EventWalk()
    is_whole = False
    for event in events(segment):
        walk.take(event)
        is_whole = event.kind == "StreamEnd"
    return walk, is_whole


class _EventWalk:
    """The events of one document into {field: place}."""

    def __init__(self) -> None:
        self.fields: dict[str, Place] = {}
        self.duplicates: list[Duplicate] = []
        self._levels: list[_Level] = []
        self._inside_key = 0  # depth within a key that is itself a collection

    def take(self, event: YamlEvent) -> None:
        place = event.place
        match event.kind:
            case "Scalar" | "Alias":
                self._node(place, event.value)
            case "MappingStart" | "SequenceStart":
                field = self._node(place, None, opens=True)
                self._levels.append(_Level(field, event.kind == "MappingStart"))
            case "MappingEnd" | "SequenceEnd":
                self._levels.pop()
                self._inside_key = max(0, self._inside_key - 1)

    def _node(self, place: Place, scalar: str | None, *, opens: bool = False) -> str:
        """Record one node and return its field. The position of a key is also that of its value."""
        if self._inside_key:
            self._inside_key += opens
            return ""
        if not self._levels:
            self.fields.setdefault("", place)
            return ""
        level = self._levels[-1]
        if not level.is_mapping:
            field = f"{level.field}[{level.index}]"
            level.index += 1
            self.fields.setdefault(field, place)
            return field
        if level.key is None:
            self._key(level, place, scalar, opens=opens)
            return ""
        field, level.key = level.key, None
        return field

    def _key(self, level: _Level, place: Place, scalar: str | None, *, opens: bool) -> None:
        self._inside_key = 1 if opens else 0
        if scalar is None:  # a collection or an alias as a key has no field that could be named
            level.key = f"{level.field}[?]"
            return
        step = field_path([scalar])
        level.key = (
            f"{level.field}.{step}" if level.field and step[0] != "[" else level.field + step
        )
        first = self.fields.setdefault(level.key, place)
        if first is not place:
            self.duplicates.append(Duplicate(place, level.key, first.line))


class YamlEvent(NamedTuple):
    """One event of a YAML parser: the name of its class without `Event`, and the attributes we
    use."""

    kind: str
    place: Place
    anchor: str | None
    value: str | None


def events(segment: Segment) -> Iterator[YamlEvent]:
    """The events of one document; at a syntax error they end with an Error."""
    from ruamel.yaml.error import YAMLError  # 40 ms that a fleet without problems need not pay

    line = segment.line
    try:
        for event in _parse(segment.text):
            mark = event.start_mark
            yield YamlEvent(
                type(event).__name__.removesuffix("Event"),
                Place(mark.line + line, mark.column + 1),
                getattr(event, "anchor", None),
                getattr(event, "value", None),
            )
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = Place(mark.line + line, mark.column + 1) if mark else Place(line, 1)
        yield YamlEvent("Error", place, None, None)


def _parse(text: str) -> Iterator[Any]:
    """Events of the C parser; of the Python one, 30 times slower, if the C extension is missing."""
    try:
        from _ruamel_yaml import CParser
    except ImportError:
        from ruamel.yaml import YAML

        yield from YAML(typ="safe", pure=True).parse(text)
        return
    parser = CParser(text)
    while (event := parser.get_event()) is not None:
        yield event
