"""In which order the changes of a plan happen, and what they do to each node's resources. Pure."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from reconciler.api.meta import ObjectRef
from reconciler.capacity.admission import MAX_REMEDIES
from reconciler.core.kept_decisions import KeptDecisions
from reconciler.core.node_disk import PlannedDisk
from reconciler.core.node_memory import PlannedMemory
from reconciler.core.node_ports import PlannedPorts
from reconciler.core.observation import Instance, Observation, TargetState
from reconciler.core.plan import Action, Blocked, Change, Restart
from reconciler.core.resource import After, FindSized, Key, Row, Situation, is_node, nothing_sized
from reconciler.core.target import REMOVALS

RESOURCES: tuple[Row, ...] = (PlannedPorts, PlannedMemory, PlannedDisk)
"""What the changes of a node take and free."""

_PLACE = {
    **dict.fromkeys(REMOVALS, 0),
    Action.UPDATE: 1,
    Action.REPLACE: 2,
    Action.DRIFT: 2,
}
_STARTS = 3


def order_changes(
    changes: list[Change],
    observed: Observation,
    sized: FindSized = nothing_sized,
    under_way: Sequence[Change] = (),
    kept: KeptDecisions | None = None,
) -> tuple[list[Change], list[Blocked]]:
    """Give every change its place in the order and what it does to its node's resources.

    Each resource is asked in turn; what one of them has too little for is held back, and nothing is
    reserved for it. What frees comes before what takes. `under_way` are changes that were made and
    wait for their models: they are asked first, keep what they have while there is enough, and have
    no place. Those of a cluster come first, each for itself.
    """
    pods = [change for change in changes if not is_node(change.target)]
    here = [change for change in changes if is_node(change.target)]
    placed, refused = _each_alone(pods, observed, sized, kept or KeptDecisions())
    order = _ordered(Situation(here, observed, sized, under_way))
    return [*placed, *order.placed], [*refused, *order.refused]


def _each_alone(
    changes: Sequence[Change], observed: Observation, sized: FindSized, kept: KeptDecisions
) -> tuple[list[Change], list[Blocked]]:
    """What changes of a cluster do there. A pod has to fit on one node alone, and Kubernetes finds
    which: none of them makes room for another, and what was found for one stands for as long as
    what it follows from."""
    running = {(i.target, i.ref): i for i in observed.instances if not is_node(i.target)}
    states = {name: kept.state(state) for name, state in observed.targets.items()}
    placed: list[Change] = []
    refused: list[Blocked] = []
    for change in sorted(changes, key=_turn_of_pods):
        key, state = _key(change), states[change.target]
        have = running.get(key)
        find = sized if len(refused) < MAX_REMEDIES else nothing_sized
        settle = partial(_alone, change, have, state, find)
        given = (change, have and have.needs, state.pools, find)
        match kept.alone.find(key, given, settle):
            case Blocked() as blocked:
                refused.append(blocked)
            case settled:
                placed.append(settled)
    kept.alone.keep({_key(change) for change in changes})
    return placed, refused


def _alone(
    change: Change, have: Instance | None, state: TargetState, sized: FindSized
) -> Change | Blocked:
    observed = Observation({state.target: state}, (have,) if have else ())
    order = _ordered(Situation([change], observed, sized))
    return order.refused[0] if order.refused else order.placed[0]


def _turn_of_pods(change: Change) -> tuple[bool, str, int, ObjectRef]:
    """The turn of a node's changes without what takes less: nothing waits for that."""
    return bool(change.awaits), change.target, _place(change), change.ref


def _ordered(situation: Situation) -> _Order:
    order = _Order(situation)
    for change in sorted(situation.under_way, key=order.turn):
        order.hold(change)
    for change in sorted(situation.changes, key=order.turn):
        order.settle(change)
    order.break_rings()
    return order


def _place(change: Change) -> int:
    if change.impact.restart is Restart.HOT:  # loads models again, as a replacement does
        return _PLACE[Action.REPLACE]
    return _PLACE.get(change.action, _STARTS)


class _Order:
    """The changes that are placed and refused so far."""

    def __init__(self, situation: Situation) -> None:
        self.placed: list[Change] = []
        self.refused: list[Blocked] = []
        self._resources = [row(situation) for row in RESOURCES]
        self._to_come = {_key(c): c for c in situation.changes if not c.is_shown_only}
        self._behind: defaultdict[Key, list[Change]] = defaultdict(list)  # whom they wait for
        self._late: set[Key] = set()  # cannot begin in this pass: a model has to come first

    def turn(self, change: Change) -> tuple[bool, str, int, tuple[int, ...], ObjectRef]:
        """Changes that free something come first: of running services, the ones that shrink. Moves
        that await their successor come last."""
        waits = bool(change.awaits)
        grow = () if waits else tuple(resource.grows_by(change) for resource in self._resources)
        return (waits, change.target, _place(change), grow, change.ref)

    def hold(self, change: Change) -> None:
        """Reserve what a change that was made before has, or refuse it."""
        if isinstance(refused := self._reserve(change), Blocked):
            self.refused.append(refused)

    def settle(self, change: Change) -> None:
        """Place or refuse a change, and then those that waited for it."""
        due = deque([change])
        while due:
            due += self._settle(due.popleft())

    def break_rings(self) -> None:
        """What is left waits for each other: one of them stops first, and starts last."""
        while self._behind:
            ring = self._ring()
            reserved = self._reserve_ring(ring)
            due = (
                self._hold_back(reserved)
                if isinstance(reserved, Blocked)
                else self._place(reserved)
            )
            for change in (*ring, *due):
                self.settle(change)

    def _settle(self, change: Change) -> list[Change]:
        """Those that waited for it."""
        if change.is_shown_only:
            self.placed.append(change)
        elif _key(change) in self._to_come:  # else it went at once
            match self._reserve(change):
                case After((first, *_)):
                    self._behind[change.target, first].append(change)
                case Blocked() as refused:
                    return self._hold_back(refused)
                case Change() as step:
                    return self._place([step])
        return []

    def _place(self, steps: Iterable[Change]) -> list[Change]:
        placed: list[Change] = []
        for step in steps:
            waits = any((step.target, ref) in self._late for ref in step.impact.after)
            if waits or step.impact.waits or step.impact.download_bytes != 0:
                self._late.add(_key(step))
            impact = replace(step.impact, order=len(self.placed), waits=step.impact.waits or waits)
            self.placed.append(replace(step, impact=impact))
            del self._to_come[_key(step)]
            placed += self._behind.pop(_key(step), ())
        return placed

    def _hold_back(self, refused: Blocked) -> list[Change]:
        self.refused.append(refused)
        key = (refused.target or "", refused.ref)
        del self._to_come[key]
        return self._behind.pop(key, [])

    def _ring(self) -> list[Change]:
        """Changes that each wait for the next, the last one for the first; they wait no more."""
        waits_for = {_key(change): key for key, all_ in self._behind.items() for change in all_}
        path = [min(waits_for)]
        while waits_for[path[-1]] not in path:
            path.append(waits_for[path[-1]])
        keys = path[path.index(waits_for[path[-1]]) :]
        start = keys.index(min(keys))
        ring = [self._to_come[key] for key in (*keys[start:], *keys[:start])]
        for change in ring:
            behind = self._behind[waits_for[_key(change)]]
            behind.remove(change)
            if not behind:
                del self._behind[waits_for[_key(change)]]
        return ring

    def _reserve_ring(self, ring: list[Change]) -> list[Change] | Blocked:
        """The first one frees what it has, so that the last one can have it, and so on; all of
        them, or who is refused."""
        first, *others = ring
        stops = replace(first, action=Action.STOP, desired=None)
        done: list[Change] = []
        for change in (stops, *reversed(others), first):
            got = self._reserve(change)
            assert not isinstance(got, After), "what it waited for is free"
            if isinstance(got, Blocked):
                self._undo(len(done))
                return got
            done.append(got)
        late = any(_key(c) in self._late or c.impact.download_bytes != 0 for c in ring)
        first = replace(done[-1], impact=replace(done[-1].impact, stops_for=ring[-1].ref))
        return [
            replace(change, impact=replace(change.impact, waits=late))
            for change in (first, *done[1:-1])
        ]

    def _reserve(self, change: Change) -> Change | After | Blocked:
        """Take from every resource, or from none."""
        for turn, resource in enumerate(self._resources):
            got = resource.take(change, self._to_come)
            if not isinstance(got, Change):
                for earlier in self._resources[:turn]:
                    earlier.undo()
                return got
            change = got
        return change

    def _undo(self, count: int) -> None:
        for _ in range(count):
            for resource in self._resources:
                resource.undo()


def _key(change: Change) -> Key:
    return change.target, change.ref
