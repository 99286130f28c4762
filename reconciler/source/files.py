"""One file: its bytes -> the objects that it declares, and the problems of each document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reconciler.api.errors import SourceError
from reconciler.api.meta import ObjectRef, Resource
from reconciler.api.problem import RULES, Finding, Problem
from reconciler.fleet.fleet import Origin
from reconciler.foreign.remark import Remark
from reconciler.foreign_kinds import DERIVED, READ
from reconciler.llmkube.translate import translated
from reconciler.source import places
from reconciler.source.checkout import FleetFile, ObjectFile, YamlFile
from reconciler.source.documents import count_documents, decode, read_documents
from reconciler.source.made import Derived, derived_of, made_of
from reconciler.source.mark import GROUP_MARK, is_wide_and_ours
from reconciler.source.namespace_limits import namespaces_over, too_large
from reconciler.source.ours import Document, Reading, ref_of, select
from reconciler.source.places import FieldPlaces, Place
from reconciler.source.plain_place import plain_key, plain_places
from reconciler.source.rules import check_one
from reconciler.source.tree import IGNORE_FILE
from reconciler.source.validators import validator

if TYPE_CHECKING:
    from reconciler.source.mistakes import Mistake
    from reconciler.source.rest import Rest

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
    """A document that is not an object, with its identity as far as that can be read.

    `is_newer`: a later version of this program may know it. `rest` is what else it says.
    """

    origin: Origin
    ref: ObjectRef | None
    content: Mapping[Any, Any]
    problems: tuple[Problem, ...]
    is_newer: bool
    rest: Rest | None = None


@dataclass(frozen=True, slots=True)
class LlmkubeDocument:
    """A document of a kind that only LLMKube has, with its mistakes and what else there is to
    say."""

    kind: str
    origin: Origin
    content: Mapping[str, Any]
    mistakes: tuple[Mistake, ...]
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
        cache[key] = known.get(key) or _read(file, why)
    return cache


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
    return _read_text(file)


def _unread(file: ObjectFile, why: str) -> File:
    problem = problem_at(file.path, Place(1, 1), "TooLarge", "", why, file.ref)
    refused = RefusedDocument(Origin(file.path, 1), file.ref, {}, (problem,), is_newer=False)
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
    items: list[Item] = []
    refused = list(_unfit(path, reading, lines))
    located: tuple[FieldPlaces, ...] = ()
    theirs: list[LlmkubeDocument] = []
    for document in reading.documents:
        if document.kind in DERIVED:
            origin = Origin(path, lines[document.index], document.index)
            derived = derived_of(document)
            items += _derived_items(derived, origin)
            if derived.mistakes:
                located = located or places.locate(text())
                refused.append(_refuse_derived(document, derived, origin, located[document.index]))
            continue
        if document.kind in READ:
            theirs.append(_theirs(path, document, lines[document.index]))
            continue
        made, remarks, names = made_of(document)
        origin = Origin(path, lines[document.index], document.index)
        if isinstance(made, Resource):
            notes = [Finding(rule, made.ref, field, text) for rule, field, text in remarks or ()]
            written = document.content if remarks is not None else None
            items.append(Item(made.ref, made, origin, (*notes, *check_one(made)), written, names))
            continue
        located = located or places.locate(text())
        refused.append(_refuse(document, made, origin, located[document.index]))
    whole, others = reading.whole, reading.others
    return File(
        path, tuple(items), tuple(refused), whole, count, others, reading.kin, tuple(theirs)
    )


def _theirs(path: str, document: Document, line: int) -> LlmkubeDocument:
    kind, content, check = document.kind, document.content, validator(document.kind)
    mistakes: tuple[Mistake, ...] = ()
    if not check.is_valid(content):
        from reconciler.source.mistakes import explain

        mistakes = explain(check, content)
    made = None if mistakes else translated(kind, content)
    origin = Origin(path, line, document.index)
    return LlmkubeDocument(kind, origin, content, mistakes, made.remarks if made else ())


def _derived_items(derived: Derived, origin: Origin) -> Iterator[Item]:
    """What is to be said of the document goes with the last of its objects, the service."""
    for index, (thing, names) in enumerate(derived.objects, 1):
        is_last = index == len(derived.objects)
        notes = [Finding(r, thing.ref, f, text) for r, f, text in derived.remarks if is_last]
        yield Item(thing.ref, thing, origin, (*notes, *check_one(thing)), names=names)


def _refuse_derived(
    document: Document, derived: Derived, origin: Origin, located: FieldPlaces
) -> RefusedDocument:
    """Known by the service that it would be: what runs of that stays as it is."""
    own = ref_of({**document.content, "kind": "InferenceService"})
    problems = tuple(
        problem_at(origin.path, located.find(m.field), m.rule, m.field, m.message, own)
        for m in derived.mistakes
    )
    return RefusedDocument(origin, own, document.content, problems, is_newer=False)


def _unfit(path: str, reading: Reading, lines: tuple[int, ...]) -> Iterator[RefusedDocument]:
    for unfit in reading.unfit:
        origin = Origin(path, lines[unfit.index], unfit.index)
        yield RefusedDocument(
            origin, ref_of(unfit.content), unfit.content, unfit.problems, unfit.is_newer
        )


def _refuse(
    document: Document, mistakes: tuple[Mistake, ...], origin: Origin, located: FieldPlaces
) -> RefusedDocument:
    from reconciler.source.rest import rest_of

    ref = ref_of(document.content)
    problems = tuple(
        problem_at(origin.path, located.find(m.field), m.rule, m.field, m.message, ref)
        for m in mistakes
    )
    is_newer = ref is not None and all(mistake.is_newer for mistake in mistakes)
    rest = rest_of(validator(document.kind), document.kind, document.content)
    return RefusedDocument(origin, ref, document.content, problems, is_newer, rest)
