"""Bytes of a YAML file -> its documents of our group. Hostile input costs a second at most.

YAML 1.2 core schema by ryaml (Rust): `no` stays text, `1e3` is a number, a repeated key is refused.
Input that the parser would reject only after much work, or not at all, is refused before it gets
there.
"""

from __future__ import annotations

import re
from typing import Any

from reconciler.api.problem import RULES, Problem, short_field
from reconciler.source import aliases, places
from reconciler.source.mark import is_wide
from reconciler.source.ours import MAX_DEPTH, Reading, select
from reconciler.source.places import Place
from reconciler.source.tree import MAX_FILE_BYTES

MAX_DOCUMENTS = 1_000  # in one file
MAX_OPEN_BRACKETS = 200  # parse time grows with the square of them: 20,000 took 0.2 s

_BRACKETS = re.compile(r"[\[\]{}]")
_NESTED_ITEMS = re.compile(rf"(?:[-?][ \t]){{{MAX_DEPTH}}}")
_DOCUMENT_MARK = re.compile(r"(?:^|[\r\x85\u2028\u2029])---(?=\s|\Z)", re.MULTILINE)
_AT = re.compile(r" at line (\d+) column (\d+)")
_AT_POSITION = re.compile(r" at position (\d+)")


def read_documents(path: str, data: bytes) -> Reading:
    """Every document of our kinds in a file. Never raises: each error becomes a Problem."""
    try:
        text = _decode(data)
        loaded = _load(text)
    except _UnreadableFile as refused:
        return Reading((), 0, (_problem(path, refused.rule, refused.place, "", refused.message),))
    return select(path, lambda: text, loaded, has_tags="!" in text)


def decode(data: bytes) -> str:
    """The text of a file that read_documents has read."""
    return data.decode("utf-8-sig", errors="replace")


def read_foreign(data: bytes) -> list[Any]:
    """Every document of a file that holds none of ours, such as a kubeconfig. ValueError: it
    cannot be read, or only at a cost."""
    try:
        return _load(_decode(data))
    except _UnreadableFile as refused:
        raise ValueError(str(refused)) from None


def count_documents(data: bytes) -> int:
    """How many documents a file has at most, without parsing; as far as MAX_DOCUMENTS, above which
    none of them is read."""
    most = 1 + data.count(b"---")
    if most > 2:  # dashes are in other places, too
        most = 1 + len(_DOCUMENT_MARK.findall(decode(data)))
    return min(most, MAX_DOCUMENTS)


class _UnreadableFile(Exception):
    """The file as a whole cannot be read. Does not leave this module."""

    def __init__(self, rule: str, message: str, place: Place) -> None:
        super().__init__(message)
        self.rule, self.message, self.place = rule, message, place


def _decode(data: bytes) -> str:
    if len(data) > MAX_FILE_BYTES:
        raise _UnreadableFile(
            "FileUnreadable",
            f"larger than {MAX_FILE_BYTES // 1024} KiB; split it into several files",
            Place(1, 1),
        )
    if is_wide(data):
        message = "this is UTF-16 or UTF-32 text; save the file as UTF-8"
        raise _UnreadableFile("FileUnreadable", message, Place(1, 1))
    try:
        return data.decode().removeprefix("\ufeff")  # the codec utf-8-sig is Python code
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", errors="replace")
        raise _UnreadableFile(
            "FileUnreadable",
            f"byte 0x{data[error.start]:02x} is not UTF-8 text; save the file as UTF-8",
            _place_of(before, len(before)),
        ) from error


def _refuse_hostile(text: str) -> None:
    """Refuse what is cheap to detect and expensive to parse."""
    depth = 0
    if text.count("[") + text.count("{") > MAX_OPEN_BRACKETS:
        for match in _BRACKETS.finditer(text):
            depth = depth + 1 if match[0] in "[{" else max(0, depth - 1)
            if depth > MAX_OPEN_BRACKETS:
                raise _too_deep(_place_of(text, match.start()))
    is_long = text.count("-") + text.count("?") > MAX_DEPTH
    items = _NESTED_ITEMS.search(text) if is_long else None
    if items:
        raise _too_deep(_place_of(text, items.start()))
    if is_long and len(_DOCUMENT_MARK.findall(text)) > MAX_DOCUMENTS:
        raise _UnreadableFile(
            "FileUnreadable",
            f"more than {MAX_DOCUMENTS:,} documents; split it into several files",
            Place(1, 1),
        )


def _too_deep(place: Place) -> _UnreadableFile:
    message = f"nested deeper than {MAX_DEPTH} levels; no fleet document needs that"
    return _UnreadableFile("FileUnreadable", message, place)


def _load(text: str) -> list[Any]:
    _refuse_hostile(text)
    try:
        counts = aliases.counted(text)
        loaded = _parse(text)
        aliases.check_agreement(text, counts, loaded)
    except aliases.AliasError as refused:
        raise _UnreadableFile(refused.rule, refused.message, refused.place) from refused
    return loaded


def _parse(text: str) -> list[Any]:
    import ryaml

    try:
        return ryaml.loads_all(text) or []  # type: ignore[attr-defined]  # not marked as exported
    except ryaml.InvalidYamlError as error:  # type: ignore[attr-defined]  # the same
        raise _syntax(text, str(error)) from error
    except (ValueError, TypeError) as error:  # a key that is a list or a mapping
        raise _UnreadableFile(
            "YamlSyntax", "a key is a list or a mapping; keys are text", Place(1, 1)
        ) from error


def _syntax(text: str, message: str) -> _UnreadableFile:
    """The parser's message without its position, and a hint where the mistake is a known one."""
    if "duplicate entry" in message:
        twice = next((d for p in places.locate(text) for d in p.duplicates), None)
        if twice:
            field = short_field(twice.field)
            repeated = f"{field} is set twice, first on line {twice.first_line}; keep one of them"
            return _UnreadableFile("YamlSyntax", repeated, twice.place)
    ats = [Place(int(at[1]), int(at[2])) for at in _AT.finditer(message)]
    position = _AT_POSITION.search(message)
    place = ats[0] if ats else Place(1, 1)
    # At the end of the file: where what is not closed was opened.
    if not _line(text, place.line) and len(ats) > 1:
        place = ats[-1]
        message = _AT.sub("", message)
    if position:
        before = text.encode()[: int(position[1])].decode(errors="replace")
        place = _place_of(before, len(before))
    place = _inside(text, place)
    if "recursion limit" in message:
        return _too_deep(place)
    if "repetition limit" in message:
        return _UnreadableFile("FileUnreadable", "its aliases stand for too many values", place)
    what = _AT_POSITION.sub("", _AT.sub("", message, count=1))
    if "control characters" in message:
        return _UnreadableFile("YamlSyntax", f"{what}; remove it", place)
    if _line(text, place.line)[place.column - 1 :].startswith("\t"):
        what = "a tab cannot indent"
    from reconciler.source.yaml_hints import hint

    hinted = hint(places.with_plain_breaks(text), place, what)
    return _UnreadableFile("YamlSyntax", f"not valid YAML: {hinted.message}", hinted.place)


def _place_of(text: str, offset: int) -> Place:
    line_start = text.rfind("\n", 0, offset) + 1
    return Place(text.count("\n", 0, offset) + 1, offset - line_start + 1)


def _inside(text: str, place: Place) -> Place:
    """The end of the last line with content, for a position behind it."""
    text = places.with_plain_breaks(text)
    last = text.rstrip().count("\n") + 1
    if place.line <= last:
        return place
    return Place(last, len(_line(text, last).rstrip()) + 1)


def _line(text: str, number: int) -> str:
    lines = text.split("\n", number)
    return lines[number - 1] if number <= len(lines) else ""


def _problem(path: str, rule: str, place: Place, field: str, message: str) -> Problem:
    return Problem(path, place.line, place.column, field, RULES[rule].severity, rule, message)
