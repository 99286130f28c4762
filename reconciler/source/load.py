"""A checkout -> a Fleet, or every problem of every file with its line.

Each file is read, checked and turned into objects on its own, and cached by its bytes: a change of
one file costs that file and the rules.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from reconciler.api.meta import ObjectRef, Resource
from reconciler.api.problem import Counts, Finding, Problem, Severity
from reconciler.fleet.draft_files import DraftFiles, with_draft_files
from reconciler.fleet.fleet import Fleet, Origin
from reconciler.fleet.model_gpus import FilledServices, with_model_gpus
from reconciler.foreign.rows import theirs_of
from reconciler.source.alike import without_repeats
from reconciler.source.chat_templates import ServicesWithTexts, with_templates
from reconciler.source.checkout import YamlFile
from reconciler.source.declared import DeclaredObjects
from reconciler.source.files import (
    FileCache,
    Item,
    Located,
    RefusedDocument,
    problem_at,
    read_all,
)
from reconciler.source.hub_sources import AddressedModels, with_hub_sources
from reconciler.source.model_files import FactsByDigest, read_model_files
from reconciler.source.places import Place
from reconciler.source.pools import Placed, PooledServices, with_pools
from reconciler.source.restated import Settled
from reconciler.source.revision_documents import RevisionDocuments
from reconciler.source.rules import check_all, check_one
from reconciler.source.tree import check_total

if TYPE_CHECKING:
    from reconciler.memory import ModelFacts
    from reconciler.runtimes.runtime import Runtime
    from reconciler.source.checkout import Checkout

_NO_NAMES: Mapping[str, str] = MappingProxyType({})
MAX_PROBLEMS = 1_000  # in one report; the rest is reported once these are fixed


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Loaded:
    """A revision after loading. `fleet` is None if a problem is an error that stops it.

    `problems` are sorted by path and line. `facts` are header facts of the models whose files are
    in the repository, by the Model's ref. `files` are the paths that contain our documents, with
    the objects in them: once this revision is applied, the next one may not lose them silently.
    `standing` is the fleet of everything that is valid, whatever else is not; `refused` are the
    documents that are not objects, `twice` the objects that are declared again; `names` are the
    fields of other projects that say those of an object.
    """

    fleet: Fleet | None
    problems: tuple[Problem, ...]
    facts: Mapping[ObjectRef, ModelFacts]
    counts: Counts
    files: Mapping[str, tuple[ObjectRef, ...]]
    origins: Mapping[ObjectRef, Origin]
    standing: Fleet
    refused: tuple[RefusedDocument, ...]
    twice: tuple[Item, ...]
    names: Mapping[ObjectRef, Mapping[str, str]]
    _located: Located

    def problem(self, finding: Finding) -> Problem:
        """A finding, such as one of `assign`, with its position."""
        of_refused = (document.origin for document in self.refused if document.ref == finding.ref)
        origin = self.origins.get(finding.ref) or next(of_refused, None)
        if origin is None:
            return problem_at(".", Place(1, 1), finding.rule, finding.field, finding.message)
        field, message = self.written_as(finding.ref, finding.field), finding.message
        if field != finding.field:
            message = f"{message} (here {finding.field})"
        place = self._located.find(origin, field)
        return problem_at(origin.path, place, finding.rule, field, message, finding.ref)

    def line(self, ref: ObjectRef, field: str) -> int:
        """The line of a field of a declared object; of what contains it, if the field is not
        written."""
        origin = self.origins[ref]
        return self._located.find(origin, self.written_as(ref, field)).line

    def written_as(self, ref: ObjectRef, field: str) -> str:
        """The field as its document has it: by LLMKube's name where that one is written."""
        return theirs_of(self.written_of(ref), field) or field if field else field

    def written_of(self, ref: ObjectRef) -> Mapping[str, str]:
        """The fields of ours that an object's document says by names of another project."""
        return self.names.get(ref, _NO_NAMES)

    @property
    def errors(self) -> tuple[Problem, ...]:
        """Errors. If there is a fleet as well, they concern this node, and hold what they concern
        as it runs."""
        return tuple(p for p in self.problems if p.severity is Severity.ERROR)


@dataclass(slots=True)
class LoadCache:
    """What one load keeps for the next: never more than the last revision used."""

    files: FileCache = field(default_factory=dict)
    headers: FactsByDigest = field(default_factory=FactsByDigest)
    services: FilledServices = field(default_factory=FilledServices)
    templates: ServicesWithTexts = field(default_factory=ServicesWithTexts)
    addressed: AddressedModels = field(default_factory=AddressedModels)
    settled: Settled = field(default_factory=Settled)
    pools: PooledServices = field(default_factory=PooledServices)
    drafts: DraftFiles = field(default_factory=DraftFiles)


def load(
    checkout: Checkout,
    runtimes: Mapping[str, Runtime],
    cache: LoadCache | None = None,
    held_paths: Collection[str] = (),
    *,
    check_source: Callable[[str], str | None] | None = None,
) -> Loaded:
    """Read a whole revision. Raises SourceError only: errors in files become Problems.

    `held_paths` contained our documents in the last applied revision: a file that still exists and
    contains none any more is an error, not a removal.
    """
    return shortened(examine(checkout, runtimes, cache, held_paths, check_source=check_source))


def examine(
    checkout: Checkout,
    runtimes: Mapping[str, Runtime],
    cache: LoadCache | None = None,
    held_paths: Collection[str] = (),
    *,
    lost: Mapping[str, tuple[ObjectRef, ...]] = MappingProxyType({}),
    check_source: Callable[[str], str | None] | None = None,
) -> Loaded:
    """Like `load`, with every problem, however many. `lost` are the objects in files that cannot be
    read now: a reference to one is not an error."""
    was_enabled = gc.isenabled()
    # nothing here makes cycles, and searching for them takes a quarter of the time for 10,000 files
    gc.disable()
    try:
        cache = cache if cache is not None else LoadCache()
        check = check_source or _check_source()
        return _load(checkout, runtimes, cache, frozenset(held_paths), lost, check)
    finally:
        if was_enabled:
            gc.enable()


def shortened(loaded: Loaded) -> Loaded:
    """The same with at most MAX_PROBLEMS problems."""
    if len(loaded.problems) <= MAX_PROBLEMS:
        return loaded
    last = loaded.problems[MAX_PROBLEMS]
    more = f"and {len(loaded.problems) - MAX_PROBLEMS:,} more problems; fix the ones above first"
    severity = Severity.ERROR if loaded.errors else last.severity
    rest = Problem(last.path, last.line, last.column, "", severity, last.rule, more)
    return replace(loaded, problems=(*loaded.problems[:MAX_PROBLEMS], rest))


Reader = Callable[["Checkout", frozenset[str]], Loaded]
"""Loads a revision, given the paths that contained documents before."""


def reader(cache: LoadCache | None = None) -> Reader:
    """`load` with a cache: an unchanged file is not parsed again."""
    from reconciler.runtimes import RUNTIMES

    known = cache or LoadCache()
    return lambda checkout, held_paths: load(checkout, RUNTIMES, known, held_paths)


def _load(
    checkout: Checkout,
    runtimes: Mapping[str, Runtime],
    cache: LoadCache,
    held_paths: frozenset[str],
    lost: Mapping[str, tuple[ObjectRef, ...]],
    check_source: Callable[[str], str | None],
) -> Loaded:
    yaml_files = list(checkout.yaml_files(held_paths))
    check_total(sum(len(file.data) for file in yaml_files if isinstance(file, YamlFile)))
    cache.files = read_all(yaml_files, cache.files)
    read = RevisionDocuments.of(cache.files.values(), held_paths, lost)
    located = Located({file.path: file for file in yaml_files})
    objects, declared, findings, remarks = _checked(read, checkout, runtimes, cache, check_source)
    bad_sources, origins = {f.ref for f in findings if f.rule == "SourceInvalid"}, read.origins
    models = read_model_files(checkout, objects, bad_sources, cache.headers, origins)
    standing = Fleet(
        revision=checkout.revision,
        commit=checkout.commit,
        objects=MappingProxyType(dict(objects)),
        origins=MappingProxyType(origins),
        files=models.files,
        written=MappingProxyType(read.written()),
        held=(*models.findings, *(f for f in findings if f.severity is Severity.BLOCKED)),
    )
    loaded = Loaded(
        fleet=standing,
        problems=(),
        facts=models.facts,
        counts=read.counts(),
        files=MappingProxyType(read.refs_by_path()),
        origins=standing.origins,
        standing=standing,
        refused=read.refused,
        twice=read.twice,
        names=MappingProxyType(read.names()),
        _located=located,
    )
    problems = (
        *read.problems(located),
        *(_remarked(each, located) for each in remarks),
        *(loaded.problem(finding) for finding in (*findings, *models.findings)),
        *_beside_mistakes(declared, read.refused, located),
    )
    loaded = replace(loaded, problems=tuple(sorted(problems, key=_place_of)))
    return replace(loaded, fleet=None) if loaded.errors else loaded


class _Checked(NamedTuple):
    """`objects` are those that are `declared`, with Models that are derived of others; `findings`
    are what the rules say, `remarks` what is to be said of LLMKube's documents."""

    objects: Mapping[ObjectRef, Resource]
    declared: DeclaredObjects
    findings: tuple[Finding, ...]
    remarks: list[Placed]


def _checked(
    read: RevisionDocuments,
    checkout: Checkout,
    runtimes: Mapping[str, Runtime],
    cache: LoadCache,
    check_source: Callable[[str], str | None],
) -> _Checked:
    """`read.origins` is given those of what is derived."""
    stated, templates = with_templates(checkout, read.stated, read.origins, cache.templates)
    addressed, repositories = with_hub_sources(checkout, stated, cache.addressed)
    filled = with_model_gpus(addressed, cache.services)
    objects, remarks = with_pools(
        read.files, filled, read.known, read.origins, runtimes, cache.pools
    )
    declared, settled = cache.settled(
        DeclaredObjects(
            objects=objects,
            refused=read.known,
            runtimes=runtimes,
            default_runtime=_default_runtime(),
            check_source=check_source,
            hosts_of=_hosts_of(),
        )
    )
    with_drafts, no_files = with_draft_files(declared.objects, read.origins, cache.drafts)
    findings = (
        *without_repeats(read.findings()),
        *templates,
        *repositories,
        *no_files,
        *(finding for each in settled.values() for finding in each.findings),
        *(settled[f.ref].placed(f) if f.ref in settled else f for f in check_all(declared)),
    )
    return _Checked(with_drafts, declared, findings, remarks)


def _remarked(placed: Placed, located: Located) -> Problem:
    origin, ref, remark = placed
    place = located.find(origin, remark.field)
    return problem_at(origin.path, place, remark.rule, remark.field, remark.message, ref)


def _place_of(problem: Problem) -> tuple[object, ...]:
    """They are told in this order."""
    place = problem.path, problem.line, problem.column
    return (*place, problem.field, problem.rule, problem.message)


def _beside_mistakes(
    declared: DeclaredObjects, refused: tuple[RefusedDocument, ...], located: Located
) -> Iterator[Problem]:
    """What the rules say of documents that are refused, as far as these can be read."""
    read = {
        document.rest.resource.ref: (document, document.rest)
        for document in refused
        if document.rest and document.rest.resource.ref not in declared.objects
    }
    if not read:
        return
    objects = {**declared.objects, **{ref: rest.resource for ref, (_, rest) in read.items()}}
    of_all = check_all(replace(declared, objects=objects))
    of_each = (finding for _, rest in read.values() for finding in check_one(rest.resource))
    for finding in (*of_all, *of_each):
        document, rest = read.get(finding.ref, (None, None))
        mistake = rest.reported(finding) if rest else None
        if document and mistake:
            place = located.find(document.origin, mistake.field)
            path, rule = document.origin.path, mistake.rule
            yield problem_at(path, place, rule, mistake.field, mistake.message, mistake.ref)


def _default_runtime() -> str:
    from reconciler.runtimes import DEFAULT_RUNTIME

    return DEFAULT_RUNTIME


def _check_source() -> Callable[[str], str | None]:
    from reconciler.models.sources import check_source

    return check_source


def _hosts_of() -> Callable[[str], Collection[str]]:
    from reconciler.models.sources import hosts_of

    return hosts_of
