"""In which order the changes of a plan happen, and what they do to each node's memory. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from reconciler.api.meta import ObjectRef
from reconciler.capacity.ledger import Ledger
from reconciler.plan import Action, Blocked, Change, Instance, Observation
from reconciler.workload import PoolNeed

_ORDER = {Action.DELETE: 0, Action.MOVE: 0, Action.UPDATE: 1, Action.REPLACE: 2, Action.DRIFT: 2}


def order_and_weigh(
    changes: list[Change], observed: Observation
) -> tuple[list[Change], list[Blocked]]:
    """Give every change its place in the order and what it does to its node's memory.

    What would push a node over its budget is held back: services that run keep their memory. What
    makes room may always happen, on a node that holds too much already as well.
    """
    instances: defaultdict[str, list[Instance]] = defaultdict(list)
    for instance in sorted(observed.instances, key=lambda instance: instance.ref):
        instances[instance.target].append(instance)
    ledgers = {target: Ledger(running) for target, running in instances.items()}
    taken = {(i.target, i.ref): _bytes(i.needs) for i in observed.instances}

    def turn(change: Change) -> tuple[str, int, int, ObjectRef]:
        """What frees memory comes first: of those that run, the ones that shrink."""
        before = taken.get((change.target, change.ref))
        wanted = _bytes(change.desired.needs) if change.desired else 0
        grows_by = 0 if before is None else wanted - before
        return (change.target, _ORDER.get(change.action, 3), grows_by, change.ref)

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
        if grows and (refusal := _refusal(change, ledger)):
            ledger.undo()
            unfit.append(refusal)
            continue
        impact = replace(change.impact, memory=memory, order=len(ordered))
        ordered.append(replace(change, impact=impact))
    return ordered, unfit


def _bytes(needs: Iterable[PoolNeed]) -> int:
    return sum(need.bytes for need in needs)


def _refusal(change: Change, ledger: Ledger) -> Blocked | None:
    if change.desired is None or change.desired.lifecycle.get("memory.mode") == "warn":
        return None
    over = ledger.over_budget(change.ref)
    if over is None:
        return None
    # Also where the fleet has room: a less important one keeps what it holds until it is told to go
    way_out = "suspend one of them, or lower what is asked"
    message = f"{over}; {way_out if ledger.has_others(change.ref) else 'lower what is asked'}"
    return Blocked(change.ref, "MemoryFits", message, change.source, change.target, (change.ref,))
