"""One file: its bytes -> the objects that it declares, and what is wrong with each document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reconciler.api import KINDS
from reconciler.api.meta import ObjectRef, Resource
from reconciler.fleet import Origin
from reconciler.problem import RULES, Finding, Problem
from reconciler.source import places
from reconciler.source.documents import decode, read_documents
from reconciler.source.mistakes import Mistake, explain
from reconciler.source.ours import Document, Reading, ref_of
from reconciler.source.places import Place, Places, field_path
from reconciler.source.plain_place import plain_place
from reconciler.source.rules import check_one
from reconciler.source.tree import GROUP_MARK
from reconciler.source.validators import validator

if TYPE_CHECKING:
    from reconciler.source.checkout import YamlFile


@dataclass(frozen=True, slots=True)
class Item:
    """One object of a file: what Fleet will hold of it, and what is wrong with it alone."""

    ref: ObjectRef
    resource: Resource
    origin: Origin
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """A document that is no object, with who it says that it is, as far as that can be read.

    `is_newer`: a later version of this program may know it.
    """

    origin: Origin
    ref: ObjectRef | None
    content: Mapping[Any, Any]
    problems: tuple[Problem, ...]
    is_newer: bool


@dataclass(frozen=True, slots=True)
class File:
    """What one file says on its own. `problems` are of the file as a whole."""

    path: str
    items: tuple[Item, ...]
    refused: tuple[Refused, ...]
    problems: tuple[Problem, ...]
    count: int
    others: int

    @property
    def all_problems(self) -> tuple[Problem, ...]:
        return (*self.problems, *(p for refused in self.refused for p in refused.problems))


FileCache = dict[tuple[str, str], File]  # by path and identity


def read_all(yaml_files: list[YamlFile], known: FileCache) -> FileCache:
    """Every file; one that is known by its bytes is not read again."""
    return {
        key: known.get(key) or _read(file.path, file.data)
        for file in yaml_files
        for key in [(file.path, file.identity)]
    }


class Located:
    """Places of fields, by a second look at the files that somebody asks about."""

    def __init__(self, data: Mapping[str, bytes]) -> None:
        self._data = data
        self._places: dict[str, tuple[Places, ...]] = {}

    def find(self, origin: Origin, field: str) -> Place:
        """The place of a field, of what holds it, or the document's first line."""
        if origin.path not in self._places:
            text = decode(self._data.get(origin.path, b""))
            plain = plain_place(text, origin.line, field)
            if plain:
                return plain
            self._places[origin.path] = places.locate(text)
        found = self._places[origin.path]
        return found[origin.document].find(field) if origin.document < len(found) else Place(1, 1)


def problem_at(
    path: str, place: Place, rule: str, field: str, message: str, ref: ObjectRef | None = None
) -> Problem:
    """A violation of a rule, with the severity that the rule has."""
    return Problem(path, place.line, place.column, field, RULES[rule].severity, rule, message, ref)


def _read(path: str, data: bytes) -> File:
    if GROUP_MARK not in data:  # a file that the last revision held
        return File(path, (), (), (), 0, 0)
    reading = read_documents(path, data)
    count = len(reading.documents) + len(reading.unfit) + len(reading.whole)
    if not reading.documents and not reading.unfit:
        return File(path, (), (), reading.whole, count, reading.others)
    text = decode(data)
    lines = places.content_lines(text)
    items: list[Item] = []
    refused = list(_unfit(path, reading, lines))
    located: tuple[Places, ...] = ()
    for document in reading.documents:
        made = _make(document)
        origin = Origin(path, lines[document.index], document.index)
        if isinstance(made, Resource):
            items.append(Item(made.ref, made, origin, check_one(made)))
            continue
        located = located or places.locate(text)
        refused.append(_refuse(document, made, origin, located[document.index]))
    return File(path, tuple(items), tuple(refused), reading.whole, count, reading.others)


def _unfit(path: str, reading: Reading, lines: tuple[int, ...]) -> Iterator[Refused]:
    for unfit in reading.unfit:
        origin = Origin(path, lines[unfit.index], unfit.index)
        yield Refused(origin, ref_of(unfit.content), unfit.content, unfit.problems, unfit.is_newer)


def _refuse(
    document: Document, mistakes: tuple[Mistake, ...], origin: Origin, located: Places
) -> Refused:
    ref = ref_of(document.content)
    problems = tuple(
        problem_at(origin.path, located.find(m.field), m.rule, m.field, m.message, ref)
        for m in mistakes
    )
    is_newer = ref is not None and all(mistake.is_newer for mistake in mistakes)
    return Refused(origin, ref, document.content, problems, is_newer)


def _make(document: Document) -> Resource | tuple[Mistake, ...]:
    """The object that a document declares, or what is wrong with the document."""
    check = validator(document.kind)
    if not check.is_valid(document.content):
        return explain(check, document.content)
    from pydantic import ValidationError

    try:
        return KINDS[document.kind].model_validate(document.content)
    except ValidationError as error:  # the schema is stricter, so this is one that it cannot hold
        return tuple(_mistakes(error))


def _mistakes(error: Any) -> Iterator[Mistake]:  # noqa: ANN401  # pydantic is imported late
    for detail in error.errors(include_url=False, include_context=False, include_input=False):
        yield Mistake("Schema", field_path(detail["loc"]), detail["msg"])
