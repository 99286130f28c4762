"""One file: its bytes -> the objects that it declares, and the problems of each document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from reconciler.api.errors import SourceError
from reconciler.api.isolated import INTERNAL, Crash, attempt, isolated
from reconciler.api.meta import ObjectRef, Resource
from reconciler.api.problem import RULES, Finding, Problem
from reconciler.fleet.fleet import Origin
from reconciler.foreign.remark import Remark
from reconciler.foreign_kinds import DERIVED, READ
from reconciler.llmkube.pools import KIND as POOL_KIND
from reconciler.llmkube.translate import translated
from reconciler.source import places
from reconciler.source.checkout import FleetFile, ObjectFile, Unfollowed, YamlFile
from reconciler.source.claims import Claim, namespace_of
from reconciler.source.documents import count_documents, decode, read_documents
from reconciler.source.made import Derived, derived_of, made_of
from reconciler.source.mark import GROUP_MARK, has_kin_document, is_wide_and_ours
from reconciler.source.namespace_limits import namespaces_over, too_large
from reconciler.source.ours import Document, Reading, ref_of, select
from reconciler.source.places import FieldPlaces, Place
from reconciler.source.plain_place import plain_key, plain_places
from reconciler.source.rules import check_one
from reconciler.source.tree import IGNORE_FILE
from reconciler.source.validators import validator

if TYPE_CHECKING:
    from reconciler.source.mistakes import Mistake

MAX_ALL_DOCUMENTS = 200_000  # in all files that mention our group: 40 s, and 1.4 GB
MAX_COPIES = 1_000  # of one content; git stores it once, so that a small repository may have many


@dataclass(frozen=True, slots=True)
class Item:
    """One object of a file: what Fleet will hold of it, and its own problems. `written`: its
    document, where that has fields of LLMKube; `names`: the fields of other projects that say its
    own."""

    ref: ObjectRef
    resource: Resource
    origin: Origin
    findings: tuple[Finding, ...]
    written: Mapping[str, Any] | None = None
    names: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class RefusedDocument:
    """A document that is not an object: its name, as far as that can be read, its problems, and
    the names in it, which say whom the problems concern. No rule reads anything else of it.

    `is_newer`: a later version of this program may know it.
    """

    origin: Origin
    ref: ObjectRef | None
    problems: tuple[Problem, ...]
    is_newer: bool
    claim: Claim


@dataclass(frozen=True, slots=True)
class LlmkubeDocument:
    """A valid document of a kind that only LLMKube has, with remarks on its fields."""

    ref: ObjectRef
    origin: Origin
    content: Mapping[str, Any]
    remarks: tuple[Remark, ...]


@dataclass(frozen=True, slots=True)
class File:
    """The content of one file. `problems` concern the file as a whole, `kin` are of documents in it
    that are not read."""

    path: str
    items: tuple[Item, ...]
    refused: tuple[RefusedDocument, ...]
    problems: tuple[Problem, ...]
    count: int
    others: int
    kin: tuple[Problem, ...] = ()
    llmkube: tuple[LlmkubeDocument, ...] = ()

    @property
    def all_problems(self) -> tuple[Problem, ...]:
        return (
            *self.problems,
            *self.kin,
            *(p for refused in self.refused for p in refused.problems),
        )


FileCache = dict[tuple[str, str], File]  # by path and identity


def read_all(files: list[FleetFile], known: FileCache) -> FileCache:
    """Read every file, unless its bytes are known. Raises SourceError, before any is read, if there
    are too many documents in files of text. A namespace with too many objects is refused alone."""
    _check_counts([file for file in files if isinstance(file, YamlFile)], known)
    over = namespaces_over(file for file in files if isinstance(file, ObjectFile))
    cache: FileCache = {}
    for file in files:
        why = over.get(file.ref.namespace, "") if isinstance(file, ObjectFile) else ""
        key = file.path, file.identity + why  # it is read once its namespace has fewer
        cache[key] = known.get(key) or _read_alone(file, why)
    return cache


def _read_alone(file: FleetFile, why: str) -> File:
    read = attempt(partial(_read, file, why))
    return _failed(file.path, read) if isinstance(read, Crash) else read


def _failed(path: str, why: Crash) -> File:
    """A file with which this program fails as a whole."""
    return File(path, (), (), (problem_at(path, Place(1, 1), INTERNAL, "", why.message),), 1, 0)


def _check_counts(yaml_files: list[YamlFile], known: FileCache) -> None:
    copies = Counter([file.identity for file in yaml_files if file.data])  # links have none
    counts: dict[str, int] = {}
    documents = 0
    for file in yaml_files:
        of, read = file.identity, known.get((file.path, file.identity))
        if of not in counts:
            counts[of] = read.count + read.others if read else count_documents(file.data)
        documents += counts[of]
        if documents > MAX_ALL_DOCUMENTS:
            raise SourceError(
                f"{file.path}: with this file there are more than {MAX_ALL_DOCUMENTS:,} documents;"
                f" split the fleet, or exclude the rest with {IGNORE_FILE}"
            )
        if copies[of] > MAX_COPIES:
            raise SourceError(
                f"{file.path}: more than {MAX_COPIES:,} files are equal to this one; remove the"
                f" copies, or exclude them with {IGNORE_FILE}"
            )


class Located:
    """Positions of fields, by a second parse of the files that are asked about."""

    def __init__(self, files: Mapping[str, FleetFile]) -> None:
        self._files = files
        self._places: dict[str, tuple[FieldPlaces, ...]] = {}
        self._plain: dict[tuple[str, int], Mapping[str, Place]] = {}

    def find(self, origin: Origin, field: str) -> Place:
        """The position of a field, of what contains it, or the document's first line."""
        if origin.path not in self._places:
            plain = self._plain_place(origin, field)
            if plain:
                return plain
            self._places[origin.path] = places.locate(self._text(origin.path))
        places_of_file = self._places[origin.path]
        return (
            places_of_file[origin.document].find(field)
            if origin.document < len(places_of_file)
            else Place(1, 1)
        )

    def _plain_place(self, origin: Origin, field: str) -> Place | None:
        if field.isidentifier():
            return plain_key(self._text(origin.path), origin.line, field)
        key = origin.path, origin.line
        if key not in self._plain:
            self._plain[key] = plain_places(self._text(origin.path), origin.line)
        return self._plain[key].get(field)

    def _text(self, path: str) -> str:
        return decode(self._files[path].data) if path in self._files else ""


def problem_at(
    path: str, place: Place, rule: str, field: str, message: str, ref: ObjectRef | None = None
) -> Problem:
    """A violation of a rule, with the rule's severity."""
    return Problem(path, place.line, place.column, field, RULES[rule].severity, rule, message, ref)


def _read(file: FleetFile, why: str) -> File:
    """`why`: an object that is not read."""
    if isinstance(file, ObjectFile):
        why = why or too_large(file)
        return _unread(file, why) if why else _read_object(file)
    if isinstance(file, Unfollowed):
        return File(file.path, (), (), (), 0, 0, (_not_followed(file),))
    return _read_text(file)


def _unread(file: ObjectFile, why: str) -> File:
    problem = problem_at(file.path, Place(1, 1), "TooLarge", "", why, file.ref)
    origin, claim = Origin(file.path, 1), Claim.of({})
    refused = RefusedDocument(origin, file.ref, (problem,), is_newer=False, claim=claim)
    return File(file.path, (), (refused,), (), 1, 0)


def _read_object(file: ObjectFile) -> File:
    reading = select(file.path, file.text, [file.content()], has_tags=False)
    return _judged(file.path, reading, file.text, (1,))


def _read_text(file: YamlFile) -> File:
    path, data = file.path, file.data
    reading = read_documents(path, data)
    is_meant = (
        reading.unfit
        or reading.documents
        or any(problem.rule == "UnknownKind" for problem in reading.whole)
        or (reading.whole and has_kin_document(data))
    )
    if GROUP_MARK not in data and not is_meant and not is_wide_and_ours(data):
        return File(path, (), (), (), 0, 0, reading.kin)  # not ours, though it may have been
    text = decode(data)
    return _judged(path, reading, lambda: text, places.content_lines(text))


def _judged(path: str, reading: Reading, text: Callable[[], str], lines: tuple[int, ...]) -> File:
    """`lines`: where each document begins."""
    count = len(reading.documents) + len(reading.unfit) + len(reading.whole)
    if not reading.documents and not reading.unfit:
        others = 0 if path.lower().endswith(".json") and not count else reading.others
        return File(path, (), (), reading.whole, count, others, reading.kin)
    origins = [Origin(path, lines[each.index], each.index) for each in reading.documents]
    located = _Located(text)

    def read(numbers: Sequence[int]) -> _Read:
        read = _Read()
        for number in numbers:
            _document(reading.documents[number], origins[number], located, read)
        return read

    outcome = isolated(range(len(origins)), read)
    if isinstance(outcome, Crash):
        return _failed(path, outcome)
    done, failed = outcome
    crashed = (_crashed(reading.documents[n], origins[n], why) for n, why in failed.items())
    return File(
        path,
        tuple(done.items),
        (*_unfit(path, reading, lines), *done.refused, *crashed),
        reading.whole,
        count,
        reading.others,
        reading.kin,
        tuple(done.llmkube),
    )


def _not_followed(file: Unfollowed) -> Problem:
    message = (
        f"{file.what}: fleet documents behind it are not read. Copy them into the fleet's"
        f" folder, or list {file.path} in {IGNORE_FILE}"
    )
    return problem_at(file.path, Place(1, 1), "NotFollowed", "", message)


@dataclass(slots=True)
class _Read:
    """The contents of documents of one file."""

    items: list[Item] = field(default_factory=list)
    refused: list[RefusedDocument] = field(default_factory=list)
    llmkube: list[LlmkubeDocument] = field(default_factory=list)


def _document(document: Document, origin: Origin, located: _Located, read: _Read) -> None:
    """Add the content of a document."""
    if document.kind in DERIVED:
        derived = derived_of(document)
        if derived.mistakes:
            read.refused.append(_refuse(document, derived.mistakes, origin, located))
        read.items += _derived_items(derived, origin)
        return
    if document.kind in READ:
        _read_theirs(document, origin, located, read)
        return
    made, remarks, names = made_of(document)
    if not isinstance(made, Resource):
        read.refused.append(_refuse(document, made, origin, located))
        return
    notes = [Finding(rule, made.ref, at, text) for rule, at, text in remarks or ()]
    written = document.content if remarks is not None else None
    item = Item(made.ref, made, origin, (*notes, *check_one(made)), written, names)
    read.items.append(item)


def _read_theirs(document: Document, origin: Origin, located: _Located, read: _Read) -> None:
    kind, content, check = document.kind, document.content, validator(document.kind)
    if not check.is_valid(content):
        from reconciler.source.mistakes import explain

        read.refused.append(_refuse(document, explain(check, content), origin, located))
        return
    made = translated(kind, content)
    ref = ObjectRef(kind, namespace_of(content), content["metadata"]["name"])
    theirs = LlmkubeDocument(ref, origin, content, made.remarks if made else ())
    read.llmkube.append(theirs)


def _derived_items(derived: Derived, origin: Origin) -> Iterator[Item]:
    """What is to be said of the document goes with the last of its objects, the service."""
    for index, (thing, names) in enumerate(derived.objects, 1):
        is_last = index == len(derived.objects)
        notes = [Finding(r, thing.ref, f, text) for r, f, text in derived.remarks if is_last]
        yield Item(thing.ref, thing, origin, (*notes, *check_one(thing)), names=names)


def _unfit(path: str, reading: Reading, lines: tuple[int, ...]) -> Iterator[RefusedDocument]:
    for unfit in reading.unfit:
        origin = Origin(path, lines[unfit.index], unfit.index)
        ref, claim = ref_of(unfit.content), Claim.of(unfit.content)
        yield RefusedDocument(origin, ref, unfit.problems, unfit.is_newer, claim)


def _refuse(
    document: Document, mistakes: tuple[Mistake, ...], origin: Origin, located: _Located
) -> RefusedDocument:
    ref = _identity(document)
    problems = tuple(
        problem_at(origin.path, located.find(origin, m.field), m.rule, m.field, m.message, ref)
        for m in mistakes
    )
    is_newer = ref is not None and all(mistake.is_newer for mistake in mistakes)
    is_newer = is_newer and document.kind not in READ
    claim = Claim.of(document.content)
    return RefusedDocument(origin, ref, problems, is_newer, claim)


def _crashed(document: Document, origin: Origin, why: str) -> RefusedDocument:
    """A document with which this program fails."""
    ref = _identity(document)
    place = Place(origin.line, 1)
    problem = problem_at(origin.path, place, INTERNAL, "", why, ref)
    return RefusedDocument(origin, ref, (problem,), False, Claim.of(document.content))


def _identity(document: Document) -> ObjectRef | None:
    """A refused document's name. One that would become a service has the name of that service,
    whose instances stay as they are."""
    if document.kind in DERIVED or document.kind == POOL_KIND:
        return ref_of({**document.content, "kind": "InferenceService"})
    return ref_of(document.content)


class _Located:
    """The positions in one file's text, found when the first one is asked for."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text

    @cached_property
    def _places(self) -> tuple[FieldPlaces, ...]:
        return places.locate(self._text())

    def find(self, origin: Origin, field: str) -> Place:
        return self._places[origin.document].find(field)
