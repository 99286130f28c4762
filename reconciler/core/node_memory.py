"""Memory as a resource of a node: what would push it over its budget is held back. Pure.

What others use of it is counted in: services that run keep their memory. What makes room may always
happen, on a node that holds too much already as well. A service that moves away keeps its memory
until its successor is ready; one whose new need is not known keeps what it has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from reconciler.api.meta import ObjectRef
from reconciler.capacity.admission import MAX_REMEDIES, let_through, why_not
from reconciler.capacity.ledger import Ledger, MemoryImpact
from reconciler.capacity.remedies import Occupancy, freed_by_others
from reconciler.core.moves import place
from reconciler.core.observation import Instance, TargetState
from reconciler.core.plan import Blocked, Change
from reconciler.core.resource import After, FindSized, Situation, ToCome, is_node, nothing_sized
from reconciler.core.target import REMOVALS
from reconciler.fleet.workload import PoolNeed

Memory = tuple[MemoryImpact, ...]
_Room = tuple[str, ObjectRef | None]
_Needs = tuple[PoolNeed, ...]


class PlannedMemory:
    """The memory of every target of a plan."""

    def __init__(self, situation: Situation) -> None:
        self._targets = situation.observed.targets
        self._sized = situation.sized
        self._ledgers = _ledgers(situation)
        self._running = {(i.target, i.ref): i.needs for i in situation.instances}
        self._leaving = _leaving(situation.changes)
        self._refused = 0
        self._taken: list[tuple[Ledger, ObjectRef, _Needs]] = []  # and what was there before

    def grows_by(self, change: Change) -> int:
        has = self._running.get((change.target, change.ref))
        wanted = _bytes(change.desired.needs) if change.desired else 0
        return 0 if has is None or _is_unknown(change) else wanted - _bytes(has)

    def take(self, change: Change, to_come: ToCome) -> Change | After | Blocked:
        ledger = self._ledgers.setdefault(_room(change), Ledger(()))
        before = ledger.needs_of(change.ref)
        if change.action in REMOVALS or change.desired is None:
            self._taken.append((ledger, change.ref, before))
            return _with(change, ledger.replace(change.ref, ()))
        has = self._running.get((change.target, change.ref))
        needs = has or () if _is_unknown(change) else change.desired.needs
        memory = ledger.replace(change.ref, needs)
        grows = any((m.after_bytes or 0) > (m.before_bytes or 0) for m in memory)
        if grows and (over := ledger.over_budget(change.ref)):
            allowed = let_through(change.desired)
            if not allowed:
                find = self._sized if self._refused < MAX_REMEDIES else nothing_sized
                moves = self._leaving[change.target] if is_node(change.target) else ()
                refused = _refusal(change, over, ledger, self._targets, find, moves)
                ledger.undo()
                self._refused += 1
                return refused
            change = _overridden(change, f"{over}; {allowed}")
        self._taken.append((ledger, change.ref, before))
        memory = _from_unknown(memory) if has == () else memory
        memory = _to_unknown(memory) if _is_unknown(change) else memory
        return _with(change, memory)

    def undo(self) -> None:
        ledger, ref, needs = self._taken.pop()
        ledger.replace(ref, needs)


def _room(thing: Change | Instance) -> _Room:
    """What is checked together for memory: all of a node; in a cluster each service for itself, as
    a pod has to fit on one node alone and Kubernetes finds which."""
    return (thing.target, None if is_node(thing.target) else thing.ref)


def _ledgers(situation: Situation) -> dict[_Room, Ledger]:
    instances: defaultdict[_Room, list[Instance]] = defaultdict(list)
    for instance in sorted(situation.instances, key=lambda instance: instance.ref):
        instances[_room(instance)].append(instance)
    states = situation.observed.targets
    return {
        room: Ledger(instances[room], _used_by_others(states.get(room[0])))
        for room in {*instances, *((target, None) for target in situation.targets)}
    }


def _leaving(changes: Iterable[Change]) -> defaultdict[str, list[Change]]:
    """The moves away from each target that await their successor, in order."""
    leaving: defaultdict[str, list[Change]] = defaultdict(list)
    for change in sorted(changes, key=lambda change: (change.target, change.ref)):
        if change.awaits:
            leaving[change.target].append(change)
    return leaving


def _with(change: Change, memory: Memory) -> Change:
    return replace(change, impact=replace(change.impact, memory=memory))


def _from_unknown(memory: Memory) -> Memory:
    """The change to what runs and has no estimate: unknown is not zero."""
    return tuple(replace(m, before_bytes=None, peak_bytes=None) for m in memory)


def _to_unknown(memory: Memory) -> Memory:
    return tuple(replace(m, after_bytes=None, peak_bytes=None) for m in memory)


def _is_unknown(change: Change) -> bool:
    """Whether it is not known yet what a service will take: its model is not here."""
    want = change.desired
    return want is not None and change.reason != "Suspended" and not (want.needs or want.memory)


def _bytes(needs: Iterable[PoolNeed]) -> int:
    return sum(need.bytes for need in needs)


def _used_by_others(state: TargetState | None) -> dict[str, int]:
    """What is known of it: what cannot be read refuses nothing."""
    return {pool.name: pool.used_by_others_bytes or 0 for pool in state.pools} if state else {}


def _overridden(change: Change, why: str) -> Change:
    reason = f"MemoryOverridden: {why}"
    return replace(change, message="; ".join(filter(None, (change.message, reason))))


def _refusal(
    change: Change,
    over: str,
    ledger: Ledger,
    targets: Mapping[str, TargetState],
    sized: FindSized,
    moves: Iterable[Change],
) -> Blocked:
    """Why a change that the ledger holds for now is `over` budget, and the smallest ways out."""
    assert change.desired is not None
    ref, node = change.ref, change.desired.node
    # Also where the fleet has room: a less important one keeps what it holds until it is told to go
    suspend = "suspend one of them" if ledger.has_others(ref) else ""
    need = sized(node, ref)
    text = why_not(need, Occupancy(node, need.pools, ledger.without(ref))) if need else None
    if text is not None:
        ways = ["or " + suspend] if suspend else []
    else:
        text = over
        ways = [f"{suspend}, or lower what is asked" if suspend else "lower what is asked"]
    if suspend:
        ways.insert(0, "what runs keeps its memory, whatever its priority")
    state = targets.get(change.target)
    largest = {pool.name: pool.largest_other for pool in state.pools} if state else {}
    ways += ["or " + way for way in freed_by_others(ref, ledger, largest)]
    ways += [f"{m.ref.label} leaves once it is ready on {place(m.home or '')}" for m in moves]
    message = "; ".join((text, *ways))
    return Blocked(ref, "MemoryFits", message, change.source, change.target, (ref,))
