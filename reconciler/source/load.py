"""A checkout -> a Fleet, or every problem of every file with its line.

Each file is read, checked and turned into objects on its own, and remembered by its bytes: a change
of one file costs that file and the rules.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from reconciler.api import KINDS
from reconciler.api.meta import DEFAULT_NAMESPACE, GROUP, ObjectRef, Resource
from reconciler.fleet import Fleet, Origin
from reconciler.problem import RULES, Counts, Finding, Problem, Severity
from reconciler.source import places
from reconciler.source.documents import Document, decode, read_documents
from reconciler.source.mistakes import Mistake, explain
from reconciler.source.model_files import HeaderCache, read_model_files
from reconciler.source.places import Place, Places, field_path
from reconciler.source.plain_place import plain_place
from reconciler.source.rules import Declared, check_all, check_one
from reconciler.source.tree import GROUP_MARK
from reconciler.source.validators import validator

if TYPE_CHECKING:
    from reconciler.memory import ModelFacts
    from reconciler.runtime import Runtime
    from reconciler.source.checkout import Checkout, YamlFile

MAX_PROBLEMS = 1_000  # in one report; whoever fixes these sees the rest


@dataclass(frozen=True, slots=True)
class Loaded:
    """What became of a revision. `fleet` is None when a problem is an error.

    `problems` are sorted by path and line. `facts` are header facts of the models whose files are
    in the repository, by the Model's ref. `files` are the paths that hold documents of ours: the
    `held_paths` of the next revision, once this one is applied.
    """

    fleet: Fleet | None
    problems: tuple[Problem, ...]
    facts: Mapping[ObjectRef, ModelFacts]
    counts: Counts
    files: tuple[str, ...]
    origins: Mapping[ObjectRef, Origin]
    _located: _Located

    def problem(self, finding: Finding) -> Problem:
        """A finding of anybody's, such as `assign`, with its place."""
        origin = self.origins.get(finding.ref)
        if origin is None:
            return _problem(".", Place(1, 1), finding.rule, finding.field, finding.message)
        place = self._located.find(origin, finding.field)
        return _problem(
            origin.path, place, finding.rule, finding.field, finding.message, finding.ref
        )

    def line(self, ref: ObjectRef, field: str) -> int:
        """The line of a field of a declared object; of what holds it, where it is not written."""
        origin = self.origins[ref]
        return self._located.find(origin, field).line


@dataclass(slots=True)
class LoadCache:
    """What is worth keeping from one load to the next: never more than the last one used."""

    files: dict[tuple[str, str], _File] = field(default_factory=dict)
    headers: HeaderCache = field(default_factory=HeaderCache)


def load(
    checkout: Checkout,
    runtimes: Mapping[str, Runtime],
    cache: LoadCache | None = None,
    held_paths: Collection[str] = (),
    *,
    check_source: Callable[[str], str | None] | None = None,
) -> Loaded:
    """Read one revision whole. Raises SourceError only: whatever a file holds becomes a Problem.

    `held_paths` held documents of ours in the last applied revision: one that is still there and
    holds none any more is an error, not a removal.
    """
    was_enabled = gc.isenabled()
    gc.disable()  # nothing here makes cycles, and looking for some is a quarter of 10,000 files
    try:
        cache = cache if cache is not None else LoadCache()
        check = check_source or _check_source()
        return _load(checkout, runtimes, cache, frozenset(held_paths), check)
    finally:
        if was_enabled:
            gc.enable()


Reader = Callable[["Checkout", frozenset[str]], Loaded]
"""A revision and the paths that held documents before, to what they hold now."""


def reader() -> Reader:
    """`load` with a cache of its own: a file that did not change is not parsed again."""
    from reconciler.runtimes import RUNTIMES

    cache = LoadCache()
    return lambda checkout, held: load(checkout, RUNTIMES, cache, held)


def _load(
    checkout: Checkout,
    runtimes: Mapping[str, Runtime],
    cache: LoadCache,
    held_paths: frozenset[str],
    check_source: Callable[[str], str | None],
) -> Loaded:
    yaml_files = list(checkout.yaml_files(held_paths))
    files = _read_all(yaml_files, cache)
    located = _Located({file.path: file.data for file in yaml_files})
    problems = [problem for file in files for problem in file.problems]
    problems += _lost_headers(files, held_paths)
    objects, origins, duplicates = _collect(files, located)
    declared = Declared(
        objects=objects,
        refused=frozenset(ref for file in files for ref in file.refused),
        runtimes=runtimes,
        default_runtime=_default_runtime(),
        check_source=check_source,
        hosts_of=_hosts_of(),
    )
    findings = (*_own_findings(files, origins), *check_all(declared))
    bad_sources = {f.ref for f in findings if f.rule == "SourceInvalid"}
    models = read_model_files(checkout, objects, bad_sources, cache.headers)
    counts = Counts(len(files), sum(f.count for f in files), sum(f.others for f in files))
    loaded = Loaded(
        fleet=Fleet(
            revision=checkout.revision,
            commit=checkout.commit,
            objects=MappingProxyType(objects),
            origins=MappingProxyType(origins),
            files=models.files,
            held=(*models.findings, *(f for f in findings if f.severity is Severity.BLOCKED)),
        ),
        problems=(),
        facts=models.facts,
        counts=counts,
        files=tuple(file.path for file in files if file.count),
        origins=MappingProxyType(origins),
        _located=located,
    )
    return _judged(loaded, problems + duplicates, (*findings, *models.findings))


def _judged(loaded: Loaded, problems: list[Problem], findings: Iterable[Finding]) -> Loaded:
    """The same with every problem in its order, and no fleet where one of them is an error."""
    problems += [loaded.problem(finding) for finding in findings]
    ordered = sorted(problems, key=lambda p: (p.path, p.line, p.column, p.field, p.rule, p.message))
    is_refused = any(problem.severity is Severity.ERROR for problem in ordered)
    if len(ordered) > MAX_PROBLEMS:
        last = ordered[MAX_PROBLEMS]
        more = f"and {len(ordered) - MAX_PROBLEMS:,} problems more; fix the ones above first"
        severity = Severity.ERROR if is_refused else last.severity
        rest = Problem(last.path, last.line, last.column, "", severity, last.rule, more)
        ordered = [*ordered[:MAX_PROBLEMS], rest]
    return replace(loaded, problems=tuple(ordered), fleet=None if is_refused else loaded.fleet)


@dataclass(frozen=True, slots=True)
class _Item:
    """One object of a file: what Fleet will hold of it, and what is wrong with it alone."""

    ref: ObjectRef
    resource: Resource
    origin: Origin
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class _File:
    """What one file says on its own. `refused` are the objects that did not pass their schema."""

    path: str
    items: tuple[_Item, ...]
    refused: tuple[ObjectRef, ...]
    problems: tuple[Problem, ...]
    count: int
    others: int


def _read_all(yaml_files: list[YamlFile], cache: LoadCache) -> list[_File]:
    known, cache.files = cache.files, {}
    for file in yaml_files:
        key = (file.path, file.identity)
        cache.files[key] = known.get(key) or _read_file(file.path, file.data)
    return list(cache.files.values())


def _read_file(path: str, data: bytes) -> _File:
    if GROUP_MARK not in data:  # a file that the last revision held
        return _File(path, (), (), (), 0, 0)
    reading = read_documents(path, data)
    if not reading.documents:
        return _File(path, (), (), reading.problems, len(reading.problems), reading.others)
    text = decode(data)
    lines = places.content_lines(text)
    located: tuple[Places, ...] = ()
    items: list[_Item] = []
    refused: list[ObjectRef] = []
    problems = list(reading.problems)
    for document in reading.documents:
        made = _make(document)
        if isinstance(made, Resource):
            origin = Origin(path, lines[document.index], document.index)
            items.append(_Item(made.ref, made, origin, check_one(made)))
            continue
        located = located or places.locate(text)
        ref = _ref_of(document)
        refused += [ref] if ref else []
        for mistake in made:
            place = located[document.index].find(mistake.field)
            problems.append(
                _problem(path, place, mistake.rule, mistake.field, mistake.message, ref)
            )
    count = len(reading.documents) + len(reading.problems)
    return _File(path, tuple(items), tuple(refused), tuple(problems), count, reading.others)


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


def _ref_of(document: Document) -> ObjectRef | None:
    """Who a refused document would have been, where it says so."""
    metadata = document.content.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        return None
    namespace = metadata.get("namespace", DEFAULT_NAMESPACE)
    scope = str(namespace) if KINDS[document.kind].namespaced else ""
    return ObjectRef(document.kind, scope, metadata["name"])


def _collect(
    files: list[_File], located: _Located
) -> tuple[dict[ObjectRef, Resource], dict[ObjectRef, Origin], list[Problem]]:
    """Objects by identity. Of two that are the same the second is an error."""
    objects: dict[ObjectRef, Resource] = {}
    origins: dict[ObjectRef, Origin] = {}
    duplicates: list[Problem] = []
    for file in files:
        for item in file.items:
            first = origins.setdefault(item.ref, item.origin)
            if first is item.origin:
                objects[item.ref] = item.resource
                continue
            message = f"{item.ref} is declared at {first.path}:{first.line} too; remove one of them"
            place = located.find(item.origin, "metadata.name")
            duplicates.append(
                _problem(file.path, place, "DuplicateObject", "metadata.name", message, item.ref)
            )
    return objects, origins, duplicates


def _own_findings(files: list[_File], origins: Mapping[ObjectRef, Origin]) -> Iterator[Finding]:
    """What was found in each object alone; nothing of a second one with the same name."""
    for file in files:
        for item in file.items:
            if item.findings and origins[item.ref] is item.origin:
                yield from item.findings


def _lost_headers(files: list[_File], held_paths: Collection[str]) -> Iterator[Problem]:
    for file in files:
        if file.path in held_paths and not file.count:
            message = (
                "held documents of the fleet in the last applied revision and holds none now;"
                f" put back its apiVersion ({GROUP}/...), or delete the file if that is meant"
            )
            yield _problem(file.path, Place(1, 1), "HeaderLost", "", message)


class _Located:
    """Places of fields, by a second look at the files that somebody asks about."""

    def __init__(self, data: Mapping[str, bytes]) -> None:
        self._data = data
        self._places: dict[str, tuple[Places, ...]] = {}

    def find(self, origin: Origin, field: str) -> Place:
        if origin.path not in self._places:
            text = decode(self._data[origin.path])
            plain = plain_place(text, origin.line, field)
            if plain:
                return plain
            self._places[origin.path] = places.locate(text)
        return self._places[origin.path][origin.document].find(field)


def _problem(
    path: str, place: Place, rule: str, field: str, message: str, ref: ObjectRef | None = None
) -> Problem:
    return Problem(path, place.line, place.column, field, RULES[rule].severity, rule, message, ref)


def _default_runtime() -> str:
    from reconciler.runtimes import DEFAULT_RUNTIME

    return DEFAULT_RUNTIME


def _check_source() -> Callable[[str], str | None]:
    from reconciler.models import check_source

    return check_source


def _hosts_of() -> Callable[[str], Collection[str]]:
    from reconciler.models import hosts_of

    return hosts_of
