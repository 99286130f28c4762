"""A checkout -> a Fleet, or every problem of every file with its line.

Each file is read, checked and turned into objects on its own, and cached by its bytes: a change of
one file costs that file and the rules.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.api.errors import SourceError, error_text
from reconciler.api.isolated import INTERNAL, Crash, attempt, isolated
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
from reconciler.source.model_files import FactsByDigest, ModelFiles, read_model_files
from reconciler.source.places import Place
from reconciler.source.pools import Placed, PooledServices, with_pools
from reconciler.source.restated import Settled
from reconciler.source.revision_documents import RevisionDocuments
from reconciler.source.rules import check_all
from reconciler.source.tree import check_total

if TYPE_CHECKING:
    from reconciler.memory import ModelFacts
    from reconciler.runtimes.runtime import Runtime
    from reconciler.source.checkout import Checkout

_NO_NAMES: Mapping[str, str] = MappingProxyType({})
WHOLE = "."  # the path of a problem that no file has
MAX_PROBLEMS = 1_000  # in one report; the rest is reported once these are fixed


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Loaded:
    """A revision after loading. `fleet` is None if a problem is an error that stops it.

    `problems` are sorted by path and line. `facts` are header facts of the models whose files are
    in the repository, by the Model's ref. `files` are the paths that contain our documents, with
    the objects in them: once this revision is applied, the next one may not lose them silently.
    `standing` is the fleet of everything that is valid, whatever else is not; `refused` are the
    documents that are not objects, `twice` the objects that are declared again or that this program
    fails with; `names` are the
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
            return problem_at(WHOLE, Place(1, 1), finding.rule, finding.field, finding.message)
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
    def is_unjudged(self) -> bool:
        """True if this program failed with the revision as a whole: nothing is known of it."""
        return any(p.rule == INTERNAL and p.path == WHOLE for p in self.problems)

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
    read now: a reference to one is not an error.

    Raises SourceError only. A revision with which this program itself fails is one with an
    InternalError.
    """
    was_enabled = gc.isenabled()
    # nothing here makes cycles, and searching for them takes a quarter of the time for 10,000 files
    gc.disable()
    try:
        cache = cache if cache is not None else LoadCache()
        check = check_source or _check_source()
        paths = frozenset(held_paths)
        loaded = attempt(lambda: _load(checkout, runtimes, cache, paths, lost, check))
        return _unjudged(checkout, loaded) if isinstance(loaded, Crash) else loaded
    except (OSError, MemoryError) as error:
        raise SourceError(f"the fleet cannot be read: {error_text(error)}") from error
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
    # Services last: of an exception about a service and its Model, the service is the cause.
    refs = sorted(read.stated, key=lambda ref: ref.kind == "InferenceService")
    outcome = isolated(
        refs, lambda some: _checked(read, some, checkout, runtimes, cache, check_source)
    )
    if isinstance(outcome, Crash):
        return _unjudged(checkout, outcome)
    checked, failed = outcome
    models, origins = checked.models, checked.origins
    findings = (*checked.findings, *models.findings, *_internal_errors(failed))
    standing = Fleet(
        revision=checkout.revision,
        commit=checkout.commit,
        objects=MappingProxyType(dict(checked.objects)),
        origins=MappingProxyType(origins),
        files=models.files,
        written=MappingProxyType(read.written()),
        held=(
            *models.findings,
            *(f for f in checked.findings if f.severity is Severity.BLOCKED),
        ),
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
        twice=(*read.twice, *(i for i in (read.items() if failed else ()) if i.ref in failed)),
        names=MappingProxyType(read.names()),
        _located=located,
    )
    problems = (
        *read.problems(located),
        *(_remarked(each, located) for each in checked.remarks),
        *(loaded.problem(finding) for finding in findings),
    )
    loaded = replace(loaded, problems=tuple(sorted(problems, key=_place_of)))
    return replace(loaded, fleet=None) if loaded.errors else loaded


def _internal_errors(failed: Mapping[ObjectRef, str]) -> Iterator[Finding]:
    for ref, why in failed.items():
        yield Finding(INTERNAL, ref, "", why)


def _unjudged(checkout: Checkout, failed: Crash) -> Loaded:
    """A revision with which this program fails, and no document of it is the cause."""
    problem = problem_at(WHOLE, Place(1, 1), INTERNAL, "", failed.message)
    nothing: Mapping[ObjectRef, Any] = MappingProxyType({})
    return Loaded(
        fleet=None,
        problems=(problem,),
        facts=nothing,
        counts=Counts(0, 0, 0),
        files=MappingProxyType({}),
        origins=nothing,
        standing=Fleet(checkout.revision, checkout.commit, nothing, nothing),
        refused=(),
        twice=(),
        names=nothing,
        _located=Located({}),
    )


class _Checked(NamedTuple):
    """`objects` are those that were checked, with Models that are derived of others, `origins`
    where each is declared; `findings` are what the rules say, `remarks` what is to be said of
    LLMKube's documents."""

    objects: Mapping[ObjectRef, Resource]
    origins: Mapping[ObjectRef, Origin]
    findings: tuple[Finding, ...]
    remarks: list[Placed]
    models: ModelFiles


def _checked(
    read: RevisionDocuments,
    refs: Sequence[ObjectRef],
    checkout: Checkout,
    runtimes: Mapping[str, Runtime],
    cache: LoadCache,
    check_source: Callable[[str], str | None],
) -> _Checked:
    """Judge the objects that `refs` name. The others are known, as refused documents are."""
    there, known = read.stated, read.known
    if len(refs) < len(there):
        some = frozenset(refs)
        known = known.union(there.keys() - some)
        there = {ref: thing for ref, thing in there.items() if ref in some}
    origins = dict(read.origins)
    stated, templates = with_templates(checkout, there, origins, cache.templates)
    addressed, repositories = with_hub_sources(checkout, stated, cache.addressed)
    filled = with_model_gpus(addressed, cache.services)
    objects, remarks = with_pools(read.files, filled, known, origins, runtimes, cache.pools)
    declared, settled = cache.settled(
        DeclaredObjects(
            objects=objects,
            refused=known,
            runtimes=runtimes,
            default_runtime=_default_runtime(),
            check_source=check_source,
            hosts_of=_hosts_of(),
        )
    )
    with_drafts, no_files = with_draft_files(declared.objects, origins, cache.drafts)
    findings = (
        *without_repeats(read.findings()),
        *templates,
        *repositories,
        *no_files,
        *(finding for each in settled.values() for finding in each.findings),
        *(settled[f.ref].placed(f) if f.ref in settled else f for f in check_all(declared)),
    )
    bad_sources = {f.ref for f in findings if f.rule == "SourceInvalid"}
    models = read_model_files(checkout, with_drafts, bad_sources, cache.headers, origins)
    return _Checked(with_drafts, origins, findings, remarks, models)


def _remarked(placed: Placed, located: Located) -> Problem:
    origin, ref, remark = placed
    place = located.find(origin, remark.field)
    return problem_at(origin.path, place, remark.rule, remark.field, remark.message, ref)


def _place_of(problem: Problem) -> tuple[object, ...]:
    """They are told in this order."""
    place = problem.path, problem.line, problem.column
    return (*place, problem.field, problem.rule, problem.message)


def _default_runtime() -> str:
    from reconciler.runtimes import DEFAULT_RUNTIME

    return DEFAULT_RUNTIME


def _check_source() -> Callable[[str], str | None]:
    from reconciler.models.sources import check_source

    return check_source


def _hosts_of() -> Callable[[str], Collection[str]]:
    from reconciler.models.sources import hosts_of

    return hosts_of
