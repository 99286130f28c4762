"""In which order the changes of a plan happen, and what they do to each node's memory. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from reconciler.api.meta import ObjectRef
from reconciler.capacity.admission import MAX_REMEDIES, Sized, let_through, why_not
from reconciler.capacity.ledger import Ledger, MemoryImpact
from reconciler.capacity.remedies import Occupancy, freed_by_others
from reconciler.core.observation import Instance, Observation, TargetState
from reconciler.core.plan import Action, Blocked, Change, Restart
from reconciler.fleet.workload import PoolNeed

_ORDER = {Action.DELETE: 0, Action.STOP: 0, Action.UPDATE: 1, Action.REPLACE: 2, Action.DRIFT: 2}


FindSized = Callable[[str, ObjectRef], Sized | None]
"""A service as it was sized for a node (by name): from that, what would fit is worked out."""


def nothing_sized(_: str, __: ObjectRef) -> Sized | None:
    """What else would fit is not known."""
    return None


def order_changes(
    changes: list[Change], observed: Observation, sized: FindSized = nothing_sized
) -> tuple[list[Change], list[Blocked]]:
    """Give every change its place in the order and what it does to its node's memory.

    What would push a node over its budget is held back, with what others use of it counted in:
    services that run keep their memory. What makes room may always happen, on a node that holds
    too much already as well. A service that moves away keeps its memory until its successor
    answers, unless another needs it here; one whose new need is not known keeps what it has.
    """
    ledgers = _ledgers(observed)
    running = {(i.target, i.ref): i.needs for i in observed.instances}
    taken = {key: _bytes(needs) for key, needs in running.items()}
    leaving = _leaving(changes)

    def turn(change: Change) -> tuple[str, int, int, ObjectRef]:
        """What frees memory comes first: of those that run, the ones that shrink."""
        before = taken.get((change.target, change.ref))
        wanted = _bytes(change.desired.needs) if change.desired else 0
        grows_by = 0 if before is None or _is_unknown(change) else wanted - before
        place = _ORDER.get(change.action, 3)
        if change.impact.restart is Restart.HOT:  # loads models again, as a replacement does
            place = _ORDER[Action.REPLACE]
        return (change.target, place, grows_by, change.ref)

    ordered: list[Change] = []
    unfit: list[Blocked] = []
    for change in sorted((c for c in changes if c.action is not Action.MOVE), key=turn):
        ledger = ledgers.setdefault(_room(change), Ledger(()))
        if change.is_shown_only:
            ordered.append(change)
            continue
        has = running.get((change.target, change.ref))
        needs = change.desired.needs if change.desired and change.reason != "Suspended" else ()
        needs = has or () if _is_unknown(change) else needs
        memory = ledger.replace(change.ref, needs)
        grows = any((m.after_bytes or 0) > (m.before_bytes or 0) for m in memory)
        if grows and (over := ledger.over_budget(change.ref)):
            # In a cluster no pod makes room. Without its model the room would lie idle meanwhile.
            may_start = _is_node(change.target) and change.impact.download_bytes == 0
            leave = leaving[change.target] if may_start else []
            if made := _make_room(change.ref, needs, ledger, leave, running):
                at_once, memory = made
                ordered += [_checked(m, i, len(ordered) + n) for n, (m, i) in enumerate(at_once)]
            elif not (allowed := change.desired and let_through(change.desired)):
                find = sized if len(unfit) < MAX_REMEDIES else nothing_sized
                unfit.append(_refusal(change, over, ledger, observed.targets, find))
                ledger.undo()
                continue
            else:
                change = _overridden(change, f"{over}; {allowed}")
        memory = _from_unknown(memory) if has == () else memory
        memory = _to_unknown(memory) if _is_unknown(change) else memory
        ordered.append(_checked(change, memory, len(ordered)))
    for move in (move for target in sorted(leaving) for move in leaving[target]):
        memory = ledgers.setdefault(_room(move), Ledger(())).replace(move.ref, ())
        ordered.append(_checked(move, memory, len(ordered)))
    return ordered, unfit


Memory = tuple[MemoryImpact, ...]
_Room = tuple[str, ObjectRef | None]


def _room(thing: Change | Instance) -> _Room:
    """What is checked together for memory: all of a node; in a cluster each service for itself, as
    a pod has to fit on one node alone and Kubernetes finds which."""
    return (thing.target, None if _is_node(thing.target) else thing.ref)


def _ledgers(observed: Observation) -> dict[_Room, Ledger]:
    instances: defaultdict[_Room, list[Instance]] = defaultdict(list)
    for instance in sorted(observed.instances, key=lambda instance: instance.ref):
        instances[_room(instance)].append(instance)
    return {
        room: Ledger(instances[room], _used_by_others(observed.targets.get(room[0])))
        for room in {*instances, *((target, None) for target in observed.targets)}
    }


def _leaving(changes: Iterable[Change]) -> defaultdict[str, list[Change]]:
    """The moves away from each target, in order."""
    found: defaultdict[str, list[Change]] = defaultdict(list)
    for change in sorted(changes, key=lambda change: (change.target, change.ref)):
        if change.action is Action.MOVE:
            found[change.target].append(change)
    return found


def _is_node(target: str) -> bool:
    return target.startswith("node/")


def _from_unknown(memory: Memory) -> Memory:
    """Of what runs and has no estimate: unknown is not zero."""
    return tuple(replace(m, before_bytes=None, peak_bytes=None) for m in memory)


def _to_unknown(memory: Memory) -> Memory:
    return tuple(replace(m, after_bytes=None, peak_bytes=None) for m in memory)


def _is_unknown(change: Change) -> bool:
    """Whether it is not known yet what a service will take: its model is not here."""
    want = change.desired
    return want is not None and change.reason != "Suspended" and not (want.needs or want.memory)


def _checked(change: Change, memory: Memory, order: int) -> Change:
    return replace(change, impact=replace(change.impact, memory=memory, order=order))


def _make_room(
    ref: ObjectRef,
    needs: tuple[PoolNeed, ...],
    ledger: Ledger,
    leaving: list[Change],
    running: Mapping[tuple[str, ObjectRef], tuple[PoolNeed, ...]],
) -> tuple[list[tuple[Change, Memory]], Memory] | None:
    """Let services that move away go at once, as few as will do, so that this one fits; None, and
    nothing changed, where that is not enough. The ledger holds this one already."""
    ledger.undo()
    gone: list[tuple[Change, Memory]] = []
    for move in leaving:
        memory = ledger.replace(move.ref, ())
        gone.append((replace(move, reason="MovedAtOnce"), memory))
        own = ledger.replace(ref, needs)
        if ledger.over_budget(ref) is None:
            del leaving[: len(gone)]
            return gone, own
        ledger.undo()
    for move, _ in gone:
        ledger.replace(move.ref, running.get((move.target, move.ref), ()))
    ledger.replace(ref, needs)
    return None


def _bytes(needs: Iterable[PoolNeed]) -> int:
    return sum(need.bytes for need in needs)


def _used_by_others(state: TargetState | None) -> dict[str, int]:
    """What is known of it: what cannot be read refuses nothing."""
    return {pool.name: pool.used_by_others_bytes or 0 for pool in state.pools} if state else {}


def _overridden(change: Change, why: str) -> Change:
    said = f"MemoryOverridden: {why}"
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
    text = why_not(found, Occupancy(node, found.pools, ledger.without(ref))) if found else None
    if text is not None:
        ways = ["or " + suspend] if suspend else []
    else:
        text = over
        ways = [f"{suspend}, or lower what is asked" if suspend else "lower what is asked"]
    state = targets.get(change.target)
    largest = {pool.name: pool.largest_other for pool in state.pools} if state else {}
    ways += ["or " + way for way in freed_by_others(ref, ledger, largest)]
    message = "; ".join((text, *ways))
    return Blocked(ref, "MemoryFits", message, change.source, change.target, (ref,))
