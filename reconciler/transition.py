"""In which order the changes of a plan happen, and what they do to each node's memory. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from reconciler.api.meta import ObjectRef
from reconciler.api.quantity import show_bytes
from reconciler.capacity.admission import MAX_REMEDIES, Sized, why_not
from reconciler.capacity.ledger import Ledger
from reconciler.capacity.remedies import Room
from reconciler.plan import Action, Blocked, Change, Instance, Observation, Restart, TargetState
from reconciler.workload import PoolNeed

_ORDER = {Action.DELETE: 0, Action.MOVE: 0, Action.UPDATE: 1, Action.REPLACE: 2, Action.DRIFT: 2}


FindSized = Callable[[str, ObjectRef], Sized | None]
"""A service as it was sized for a node (by name): from that, what would fit is worked out."""


def nothing_sized(_: str, __: ObjectRef) -> Sized | None:
    """Nobody knows what else would fit."""
    return None


def order_and_weigh(
    changes: list[Change], observed: Observation, sized: FindSized = nothing_sized
) -> tuple[list[Change], list[Blocked]]:
    """Give every change its place in the order and what it does to its node's memory.

    What would push a node over its budget is held back, with what others use of it counted in:
    services that run keep their memory. What makes room may always happen, on a node that holds
    too much already as well.
    """
    instances: defaultdict[str, list[Instance]] = defaultdict(list)
    for instance in sorted(observed.instances, key=lambda instance: instance.ref):
        instances[instance.target].append(instance)
    ledgers = {
        target: Ledger(instances[target], _used_by_others(observed.targets.get(target)))
        for target in {*instances, *observed.targets}
    }
    taken = {(i.target, i.ref): _bytes(i.needs) for i in observed.instances}

    def turn(change: Change) -> tuple[str, int, int, ObjectRef]:
        """What frees memory comes first: of those that run, the ones that shrink."""
        before = taken.get((change.target, change.ref))
        wanted = _bytes(change.desired.needs) if change.desired else 0
        grows_by = 0 if before is None else wanted - before
        place = _ORDER.get(change.action, 3)
        if change.impact.restart is Restart.HOT:  # loads models anew, as a replacement does
            place = _ORDER[Action.REPLACE]
        return (change.target, place, grows_by, change.ref)

    ordered: list[Change] = []
    unfit: list[Blocked] = []
    for change in sorted(changes, key=turn):
        ledger = ledgers.setdefault(change.target, Ledger(()))
        if change.action in (Action.UNKNOWN, Action.DEFERRED):
            ordered.append(change)
            continue
        needs = change.desired.needs if change.desired and change.reason != "Suspended" else ()
        memory = ledger.replace(change.ref, needs)
        grows = any((m.after_bytes or 0) > (m.before_bytes or 0) for m in memory)
        if grows and (over := ledger.over_budget(change.ref)):
            if not _is_let_through(change):
                find = sized if len(unfit) < MAX_REMEDIES else nothing_sized
                unfit.append(_refusal(change, over, ledger, observed.targets, find))
                ledger.undo()
                continue
            change = _overridden(change, over)
        impact = replace(change.impact, memory=memory, order=len(ordered))
        ordered.append(replace(change, impact=impact))
    return ordered, unfit


def _bytes(needs: Iterable[PoolNeed]) -> int:
    return sum(need.bytes for need in needs)


def _used_by_others(state: TargetState | None) -> dict[str, int]:
    """What is known of it: what cannot be read refuses nothing."""
    return {pool.name: pool.used_by_others_bytes or 0 for pool in state.pools} if state else {}


def _is_let_through(change: Change) -> bool:
    return change.desired is not None and change.desired.lifecycle.get("memory.mode") == "warn"


def _overridden(change: Change, over: str) -> Change:
    said = f"MemoryOverridden: {over}; started all the same, by memory.mode: warn"
    return replace(change, message="; ".join(filter(None, (change.message, said))))


def _refusal(
    change: Change,
    over: str,
    ledger: Ledger,
    targets: Mapping[str, TargetState],
    sized: FindSized,
) -> Blocked:
    """Why a change that the ledger holds for now is `over` budget, and the smallest ways out."""
    assert change.desired is not None
    ref, node = change.ref, change.desired.node
    # Also where the fleet has room: a less important one keeps what it holds until it is told to go
    suspend = "suspend one of them" if ledger.has_others(ref) else ""
    found = sized(node, ref)
    text = why_not(found, Room(node, found.pools, ledger.without(ref))) if found else None
    if text is not None:
        ways = ["or " + suspend] if suspend else []
    else:
        text = over
        ways = [f"{suspend}, or lower what is asked" if suspend else "lower what is asked"]
    ways += _freed_by_others(ref, ledger, targets.get(change.target))
    message = "; ".join((text, *ways))
    return Blocked(ref, "MemoryFits", message, change.source, change.target, (ref,))


def _freed_by_others(ref: ObjectRef, ledger: Ledger, state: TargetState | None) -> list[str]:
    """What others would have to give back, where that alone would be enough."""
    need = ledger.too_small(ref)
    assert need is not None
    in_use = ledger.used_by_others(need.pool)
    missing = ledger.taken_bytes(need.pool) + in_use - need.budget_bytes
    if missing > in_use or state is None:
        return []
    largest = next((p.largest_other for p in state.pools if p.name == need.pool), "")
    named = f"; the largest of them is {largest}" if largest else ""
    return [f"or free {show_bytes(missing)} of what others use there{named}"]
