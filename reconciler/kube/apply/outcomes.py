"""The outcomes of services, from those of their objects. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.api.meta import ObjectRef
from reconciler.core.plan import Action, Blocked, Change, ObjectName
from reconciler.core.target import REMOVALS, Outcome, Result
from reconciler.kube.inventory import parent_id


def of_services(
    services: Iterable[Change], objects: Iterable[Outcome], blocked: Iterable[Blocked]
) -> tuple[Outcome, ...]:
    """A service's outcome is the worst of its objects'. If all of its objects were held back, it is
    unchanged; `blocked` are those holds."""
    worst: dict[ObjectRef, Outcome] = {}
    for outcome in objects:
        ref = outcome.change.ref
        if ref not in worst or _GRAVITY[outcome.result] > _GRAVITY[worst[ref].result]:
            worst[ref] = outcome
    block_of = {item.ref: item for item in reversed(tuple(blocked))}
    return tuple(_of_service(change, worst.get(change.ref), block_of) for change in services)


def of_inventory(target: str, fleet: str) -> Change:
    """Recording what was applied: not in a plan, as nothing of the fleet itself changes."""
    oid = parent_id(fleet)
    named = ObjectName("v1", oid.kind, oid.namespace, oid.name)
    ref = ObjectRef("Fleet", "", fleet)
    return Change(Action.UPDATE, target, ref, "ObjectChanged", None, object=named)


def pods_leaving(objects: Iterable[Outcome], services: Iterable[Outcome]) -> Iterable[ObjectRef]:
    """Services whose pods go with what was just done."""
    for outcome in (*objects, *services):
        change = outcome.change
        kind = change.object.kind if change.object else ""
        goes = kind == "Deployment" or (not kind and change.reason == "Suspended")
        if outcome.result is Result.APPLIED and change.action in REMOVALS and goes:
            yield change.ref


_GRAVITY = {Result.APPLIED: 0, Result.SKIPPED: 1, Result.FAILED: 2}


def _of_service(
    change: Change, worst: Outcome | None, block_of: dict[ObjectRef, Blocked]
) -> Outcome:
    if worst is not None and worst.result is not Result.APPLIED:
        return Outcome(change, worst.result, worst.message)
    if worst is None and (why := block_of.get(change.ref)):
        return Outcome(change, Result.SKIPPED, f"{why.reason}: {why.message}")
    return Outcome(change, Result.APPLIED)
