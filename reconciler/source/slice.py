"""How an agent follows a revision with errors: errors in its own slice hold what they concern, and
errors elsewhere stop nothing here.

An object whose document has an error is held, never absent: it keeps running as it is. The Fleet
and the FleetNodes affect other objects, so their last good documents replace broken ones. A file
that cannot be read may contain anything: its former objects are held, and nothing is removed
meanwhile. Pure, except for the reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from reconciler import __version__
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.kinds import KIND_TABLE, KINDS
from reconciler.api.meta import ObjectRef, Resource
from reconciler.api.problem import RULES, Finding, Problem, Severity
from reconciler.fleet.fleet import Fleet, Origin
from reconciler.source.claims import slice_of
from reconciler.source.load import LoadCache, Loaded, Reader, examine, shortened
from reconciler.source.rules import not_allowed

if TYPE_CHECKING:
    from reconciler.source.checkout import Checkout
    from reconciler.source.history import Applied

_POLICIES = tuple(kind.name for kind in KIND_TABLE.values() if kind.is_policy)


def slice_reader(
    node: str, last: Callable[[], Applied | None], cache: LoadCache | None = None
) -> Reader:
    """`load` for the agent of a node. `last` returns what was applied before."""
    from reconciler.runtimes import RUNTIMES

    known = cache or LoadCache()

    def read(checkout: Checkout, held_paths: frozenset[str]) -> Loaded:
        before = last()
        # Also for the applied revision itself, loaded again after a restart: parts of it may be
        # held.
        paths = held_paths.union(before.files) if before else held_paths
        lost = before.objects if before else {}
        return shortened(
            own_slice(examine(checkout, RUNTIMES, known, paths, lost=lost), node, before)
        )

    return read


def object_reader(last: Callable[[], Applied | None]) -> Reader:
    """`load` for a fleet whose objects have many authors, as in a cluster: an object with an error
    holds only what it concerns. `last` returns what was applied before."""
    from reconciler.runtimes import RUNTIMES

    cache = LoadCache()

    def read(checkout: Checkout, held_paths: frozenset[str]) -> Loaded:
        return shortened(each_alone(examine(checkout, RUNTIMES, cache, held_paths), last()))

    return read


def own_slice(loaded: Loaded, node: str, before: Applied | None) -> Loaded:
    """The revision as this node may follow it.

    `fleet` stays None if an error cannot be bridged: one in the node's own FleetNode, or in the
    Fleet, without a last good document.
    """
    stops = frozenset({ObjectRef("FleetNode", "", node), _POLICY})
    return _followed(loaded, before, lambda standing: slice_of(node, loaded, standing), stops)


def each_alone(loaded: Loaded, before: Applied | None) -> Loaded:
    """The revision with every error confined to the objects it concerns. `fleet` stays None if the
    Fleet itself is wrong and there is no last good one."""
    return _followed(loaded, before, lambda _: None, frozenset({_POLICY}))


def valid_part(loaded: Loaded) -> Fleet:
    """Return the fleet without the documents that have errors, and without those that refer to
    these."""
    wrong = {problem.ref for problem in loaded.errors}
    there = loaded.standing.objects
    objects = {ref: thing for ref, thing in there.items() if ref not in wrong}
    while lost := [
        ref
        for ref, thing in objects.items()
        if any(other not in objects for _, other in thing.references)
    ]:
        for ref in lost:
            del objects[ref]
    return replace(loaded.standing, objects=MappingProxyType(objects))


def _followed(
    loaded: Loaded,
    before: Applied | None,
    own_of: Callable[[Fleet], frozenset[ObjectRef] | None],
    stops: frozenset[ObjectRef],
) -> Loaded:
    """A revision with errors, as far as it can be followed.

    `own_of` the valid part returns the objects whose errors count here (None: all); the revision
    cannot be followed without the objects in `stops`.
    """
    if not loaded.errors or loaded.is_unjudged:
        return loaded
    wrong = _Wrong.of(loaded, before)
    stand_ins = _stand_ins(before)
    objects, unknown = _with_stand_ins(loaded.standing, wrong, stand_ins)
    standing = replace(loaded.standing, objects=MappingProxyType(objects))
    own = own_of(standing)
    origins = MappingProxyType({**wrong.origins, **loaded.origins})
    unsure = bool(wrong.unread) and not stand_ins
    findings = (*wrong.held, *_unsure_services(standing, unknown, wrong, unsure=unsure))
    refs = frozenset(finding.ref for finding in findings)
    fleet = replace(
        standing,
        origins=origins,
        held=(*_held_already(loaded.standing, objects), *findings),
        elsewhere=frozenset() if own is None else refs - own,
        incomplete=_incomplete(wrong.unread),
    )
    return replace(
        loaded,
        fleet=None if unknown & stops else fleet,
        origins=origins,
        problems=tuple(_judged(problem, own, wrong.newer) for problem in loaded.problems),
        files=MappingProxyType(dict(_files(loaded, wrong.unread, before))),
    )


def foreign(loaded: Loaded) -> frozenset[str]:
    """Problems of a revision that refuse nothing here: errors of other nodes, and fields that only
    newer agents know. One line each."""
    return frozenset(
        str(problem)
        for problem in loaded.problems
        if problem.rule in ("AgentTooOld", "VersionRequired")
        or (problem.severity is Severity.WARNING and RULES[problem.rule].severity is Severity.ERROR)
    )


_POLICY = ObjectRef("Fleet", "", "")  # any Fleet: there may be one, whatever its name


@dataclass(frozen=True, slots=True)
class _Wrong:
    """The errors, by what they concern. `unread` are the paths whose content is unknown, with the
    first problem of each; `newer` is unknown to this version only."""

    refs: frozenset[ObjectRef]
    held: tuple[Finding, ...]
    unread: Mapping[str, Problem]
    newer: frozenset[ObjectRef]
    origins: Mapping[ObjectRef, Origin]

    @classmethod
    def of(cls, loaded: Loaded, before: Applied | None) -> _Wrong:
        first: dict[ObjectRef, Problem] = {}
        unread: dict[str, Problem] = {}
        for problem in loaded.errors:
            if problem.ref is None:
                unread.setdefault(problem.path, problem)
            else:
                first.setdefault(problem.ref, problem)
        newer = _newer(loaded, first)
        findings = [_finding(ref, problem, newer) for ref, problem in first.items()]
        origins = {d.ref: d.origin for d in loaded.refused if d.ref}
        for path, problem in unread.items():
            there = set(loaded.files.get(path, ()))
            for ref in before.objects.get(path, ()) if before else ():
                if ref not in there and ref not in first:
                    why = f"it was in {path}, which cannot be read: {problem.message}"
                    findings.append(Finding(problem.rule, ref, "", why))
                    origins.setdefault(ref, Origin(path, 1))
        refs = frozenset(finding.ref for finding in findings)
        kept = tuple(f for f in findings if f.ref.kind not in _POLICIES)
        return cls(refs, kept, unread, newer, origins)


def _newer(loaded: Loaded, first: Mapping[ObjectRef, Problem]) -> frozenset[ObjectRef]:
    """Objects whose only problem is something that a newer agent knows."""
    seen: dict[ObjectRef, bool] = {}
    for document in loaded.refused:
        if document.ref:
            seen[document.ref] = document.is_newer and seen.get(document.ref, True)
    other = {p.ref for p in loaded.errors if p.rule == "DuplicateObject"}
    return frozenset(ref for ref, is_newer in seen.items() if is_newer and ref in first) - other


def _finding(ref: ObjectRef, problem: Problem, newer: frozenset[ObjectRef]) -> Finding:
    if ref in newer:
        return Finding("AgentTooOld", ref, problem.field, _too_old(problem))
    return Finding(problem.rule, ref, problem.field, problem.message)


def _too_old(problem: Problem) -> str:
    word, is_listed, _ = problem.message.partition(" is not one of ")
    what = f"{word} is nothing" if is_listed else problem.message.partition(";")[0]
    return f"{what} that this agent, {__version__}, knows: upgrade the agent, or correct the line"


def _stand_ins(before: Applied | None) -> dict[ObjectRef, Resource]:
    """The Fleet and the FleetNodes that were in force, without those that this version cannot
    read."""
    from pydantic import ValidationError

    stand_ins: dict[ObjectRef, Resource] = {}
    for document in before.documents if before else ():
        kind = KINDS.get(str(document.get("kind")))
        try:
            thing = kind.model_validate(document) if kind else None
        except ValidationError:  # written by a newer version, before it was rolled back
            continue
        if thing is not None:
            stand_ins[thing.ref] = thing
    return stand_ins


def _with_stand_ins(
    fleet: Fleet, wrong: _Wrong, stand_ins: Mapping[ObjectRef, Resource]
) -> tuple[dict[ObjectRef, Resource], frozenset[ObjectRef]]:
    """The objects in force, and the broken policies without a stand-in."""
    objects = dict(fleet.objects)
    broken = {ref for ref in wrong.refs if ref.kind in _POLICIES}
    if wrong.unread:
        broken |= {ref for ref in stand_ins if ref not in objects}
    if any(ref.kind == "Fleet" for ref in broken):  # of two it is not known which one is meant
        broken |= {ref for ref in (*objects, *stand_ins) if ref.kind == "Fleet"}
    unknown = set()
    for ref in broken:
        objects.pop(ref, None)
        if ref in stand_ins:
            objects[ref] = stand_ins[ref]
        elif ref.kind == "FleetNode":
            unknown.add(ref)
        elif not stand_ins:  # else there was no Fleet before, and the defaults stay in force
            unknown.add(_POLICY)
    return objects, frozenset(unknown)


def _held_already(fleet: Fleet, objects: Mapping[ObjectRef, Resource]) -> Iterator[Finding]:
    """Findings of the rules, with the hosts that the Fleet in force allows."""
    from reconciler.models.sources import hosts_of

    yield from (finding for finding in fleet.held if finding.rule != "SourceNotAllowed")
    yield from not_allowed(objects.values(), hosts_of)


def _unsure_services(
    fleet: Fleet, unknown: frozenset[ObjectRef], wrong: _Wrong, *, unsure: bool
) -> Iterator[Finding]:
    """Services that may be meant for an unreadable node: ignoring that node would place them
    elsewhere."""
    names = {ref.name for ref in unknown if ref.kind == "FleetNode"}
    if not names and not unsure:
        return
    what = f"FleetNode {', '.join(sorted(names))}" if names else "a file of the fleet"
    message = f"{what} cannot be read, and it may be meant for that one: left as it is"
    for service in fleet.all(InferenceService):
        stated = service.spec.placement.nodes
        if service.ref not in wrong.refs and (not stated or names.intersection(stated)):
            yield Finding("PlacementNotStated", service.ref, "spec.placement", message)


def _incomplete(unread: Iterable[str]) -> str:
    paths = sorted(unread)
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return (
        f"it is not declared in what can be read; {', '.join(paths[:3])}{more} cannot be, and may"
        " declare it: left as it runs"
        if paths
        else ""
    )


def _judged(
    problem: Problem, own: frozenset[ObjectRef] | None, newer: frozenset[ObjectRef]
) -> Problem:
    """The problem as it counts here: an error of another node is a warning, under the same rule."""
    if problem.severity is not Severity.ERROR:
        return problem
    is_own = own is None or problem.ref is None or problem.ref in own
    if problem.ref in newer:
        severity = RULES["AgentTooOld"].severity if is_own else Severity.WARNING
        return replace(problem, rule="AgentTooOld", severity=severity, message=_too_old(problem))
    return problem if is_own else replace(problem, severity=Severity.WARNING)


def _files(
    loaded: Loaded, unread: Iterable[str], before: Applied | None
) -> Iterator[tuple[str, tuple[ObjectRef, ...]]]:
    """The objects of each file, for the next revision: also of files that could not be read in this
    one."""
    yield from loaded.files.items()
    for path in unread:
        stood = before.objects.get(path, ()) if before else ()
        yield path, tuple(dict.fromkeys((*loaded.files.get(path, ()), *stood)))
