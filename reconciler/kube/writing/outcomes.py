"""What became of services, from what became of their objects. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.api.meta import ObjectRef
from reconciler.plan import Blocked, Change
from reconciler.target import Outcome, Result


def of_services(
    services: Iterable[Change], objects: Iterable[Outcome], blocked: Iterable[Blocked]
) -> tuple[Outcome, ...]:
    """A service is as far as the worst of its objects. One of which every object was held back is
    left as it was; `blocked` are those holds."""
    worst: dict[ObjectRef, Outcome] = {}
    for outcome in objects:
        ref = outcome.change.ref
        if ref not in worst or _GRAVITY[outcome.result] > _GRAVITY[worst[ref].result]:
            worst[ref] = outcome
    held = {item.ref: item for item in reversed(tuple(blocked))}
    return tuple(_of_service(change, worst.get(change.ref), held) for change in services)


_GRAVITY = {Result.APPLIED: 0, Result.SKIPPED: 1, Result.FAILED: 2}


def _of_service(change: Change, worst: Outcome | None, held: dict[ObjectRef, Blocked]) -> Outcome:
    if worst is not None and worst.result is not Result.APPLIED:
        return Outcome(change, worst.result, worst.message)
    if worst is None and (why := held.get(change.ref)):
        return Outcome(change, Result.SKIPPED, f"{why.reason}: {why.message}")
    return Outcome(change, Result.APPLIED)
