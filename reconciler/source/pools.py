"""LLMKube's ModelPools and ModelRouters: one of ours in the place of a pool's members. Pure.

A pool with a mistake holds its service and its members as they run: on their own the members would
take the memory that they are to share.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import ObjectRef, Resource
from reconciler.api.problem import Severity
from reconciler.fleet.fleet import Origin
from reconciler.foreign.remark import Remark
from reconciler.foreign.rows import answers
from reconciler.llmkube.pools import APART, KIND, Pool, misfits, outsiders, pool_service, read_pool
from reconciler.llmkube.project import NAME
from reconciler.llmkube.routers import BY_ENTRY, backend_remarks
from reconciler.memo import Memo, Same
from reconciler.source.files import File, LlmkubeDocument
from reconciler.source.rules import check_one

if TYPE_CHECKING:
    from reconciler.runtimes.runtime import Runtime

Made = tuple[InferenceService, tuple[Remark, ...]]
PooledServices = Memo[ObjectRef, Made]


class Placed(NamedTuple):
    """A remark, the document that has it, and what it is about."""

    origin: Origin
    ref: ObjectRef
    remark: Remark


def with_pools(
    files: Sequence[File],
    objects: Mapping[ObjectRef, Resource],
    refused: Collection[ObjectRef],
    origins: dict[ObjectRef, Origin],
    runtimes: Mapping[str, Runtime],
    made: PooledServices,
) -> tuple[dict[ObjectRef, Resource], list[Placed]]:
    """The objects, with a service for each pool and without its members. `refused` are there, and
    are not objects. `origins` is given those of the pools. `made` is what came out before: of the
    same objects the same comes out again."""
    theirs = [document for file in files for document in file.llmkube]
    pooled: dict[ObjectRef, ObjectRef] = {}  # members, each with its pool
    services: dict[ObjectRef, Resource] = {}
    placed: list[Placed] = []
    for document in (document for file in files for document in file.refused):
        if document.ref is not None:
            placed += _held(document.ref, document.claim.members, objects, origins)
    router, single = _runtimes_of_pools(runtimes) if theirs else ("", ())
    for pool_document in theirs:
        if pool_document.ref.kind != KIND:
            continue
        origin, pool = pool_document.origin, read_pool(pool_document.content)
        ref = pool.ref
        wrong = _mistakes(pool, objects, refused, pooled, services.keys())
        apart = _apart(pool, pool_document.content, objects, single)
        if apart and not wrong:
            placed += (Placed(origin, ref, remark) for remark in apart)
            continue
        if wrong:
            placed += (Placed(origin, ref, remark) for remark in (*wrong, *apart))
            placed += _held(ref, pool.members, objects, origins)
        else:
            there = [each for each in _services(pool, objects) if each is not None]
            build = partial(pool_service, pool, there, router)
            services[ref], remarks = made.find(ref, (Same(pool_document), *map(Same, there)), build)
            pooled |= dict.fromkeys(pool.members, ref)
            all_remarks = (*pool_document.remarks, *remarks, *_own(services[ref], there))
            placed += (Placed(origin, ref, remark) for remark in all_remarks)
        origins.setdefault(ref, origin)
    made.keep(services)
    origins |= {ref: each.origin for each in theirs if (ref := pool_ref(each)) in services}
    placed += _of_routers(theirs, objects, pooled)
    alone = {ref: thing for ref, thing in objects.items() if ref not in pooled}
    return {**alone, **services}, placed


def _runtimes_of_pools(runtimes: Mapping[str, Runtime]) -> tuple[str, tuple[str, ...]]:
    """The runtime whose process serves models in turn, and every name of the one that serves such a
    model alone."""
    router = next(row for row in runtimes.values() if row.serves_many)
    alone = [
        row
        for row in runtimes.values()
        if not row.serves_many and row.engine.programs == router.engine.programs
    ]
    return router.name, tuple(name for row in alone for name in (row.name, *row.aliases))


def pool_ref(document: LlmkubeDocument) -> ObjectRef:
    """The service that a pool becomes."""
    return document.ref._replace(kind="InferenceService")


def _mistakes(
    pool: Pool,
    objects: Mapping[ObjectRef, Resource],
    refused: Collection[ObjectRef],
    pooled: Mapping[ObjectRef, ObjectRef],
    pools: Collection[ObjectRef],
) -> tuple[Remark, ...]:
    if pool.ref in pools or (pool.ref in objects and pool.ref not in pool.members):
        what = "another ModelPool" if pool.ref in pools else "a service that is no member"
        text = f"{pool.ref.label} is {what}, too; rename the pool"
        return (Remark("DuplicateObject", "metadata.name", text),)
    if wrong := [each for each in pool.members if each in refused]:
        names = ", ".join(each.name for each in wrong)
        return (Remark("ModelsRule", "spec.members", f"{names} is refused: see its own problem"),)
    return (*misfits(pool, _services(pool, objects)), *_twice(pool, pooled))


def _apart(
    pool: Pool,
    content: Mapping[str, Any],
    objects: Mapping[ObjectRef, Resource],
    single: Collection[str],
) -> tuple[Remark, ...]:
    """What there is to say where members are of several engines; nothing where they are not."""
    others = tuple(outsiders(pool, _services(pool, objects), single))
    return (*others, *answers(APART, content, NAME)) if others else ()


def _services(
    pool: Pool, objects: Mapping[ObjectRef, Resource]
) -> tuple[InferenceService | None, ...]:
    """Its members; None where there is none."""
    there = (objects.get(member) for member in pool.members)
    return tuple(each if isinstance(each, InferenceService) else None for each in there)


def _twice(pool: Pool, pooled: Mapping[ObjectRef, ObjectRef]) -> Iterator[Remark]:
    for index, member in enumerate(pool.members):
        if member in pooled:
            text = f"{member.name} is a member of {pooled[member].name} too"
            yield Remark("DuplicateObject", pool.field(index), f"{text}; remove it from one")


def _held(
    pool: ObjectRef,
    members: Iterable[ObjectRef],
    objects: Mapping[ObjectRef, Resource],
    origins: Mapping[ObjectRef, Origin],
) -> Iterator[Placed]:
    text = f"it is a member of the ModelPool {pool.name}, which has a mistake"
    for member in members:
        if member in objects and member != pool:
            yield Placed(origins[member], member, Remark("ModelsRule", "metadata.name", text))


def _own(service: Resource, members: Sequence[Resource]) -> Iterator[Remark]:
    """What the rules say of the service alone; errors of a member's hold it, too."""
    of_members = {(each.rule, each.message) for member in members for each in check_one(member)}
    for finding in check_one(service):
        if finding.severity is Severity.ERROR or (finding.rule, finding.message) not in of_members:
            yield Remark(finding.rule, finding.field, finding.message)


def _of_routers(
    theirs: Sequence[LlmkubeDocument],
    objects: Mapping[ObjectRef, Resource],
    pooled: Mapping[ObjectRef, ObjectRef],
) -> Iterator[Placed]:
    for document in theirs:
        if document.ref.kind != KIND:
            remarks = [each for each in document.remarks if each.field not in BY_ENTRY]
            remarks += backend_remarks(document.content, objects.keys(), pooled)
            yield from (Placed(document.origin, document.ref, remark) for remark in remarks)
