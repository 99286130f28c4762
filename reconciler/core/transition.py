"""In which order the changes of a plan happen, and what they do to each node's resources. Pure."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import replace

from reconciler.api.meta import ObjectRef
from reconciler.core.node_memory import NodeMemory
from reconciler.core.observation import Observation
from reconciler.core.plan import Action, Blocked, Change, Restart
from reconciler.core.resource import After, FindSized, Key, Row, Situation, nothing_sized

RESOURCES: tuple[Row, ...] = (NodeMemory,)
"""What the changes of a node take and free."""

_PLACE = {Action.DELETE: 0, Action.STOP: 0, Action.UPDATE: 1, Action.REPLACE: 2, Action.DRIFT: 2}
_STARTS = 3


def order_changes(
    changes: list[Change], observed: Observation, sized: FindSized = nothing_sized
) -> tuple[list[Change], list[Blocked]]:
    """Give every change its place in the order and what it does to its node's resources.

    Each resource is asked in turn; what one of them has too little for is held back, and nothing is
    reserved for it. What frees comes before what takes.
    """
    order = _Order(Situation(changes, observed, sized))
    for change in sorted(changes, key=order.turn):
        order.settle(change)
    return order.placed, order.refused


class _Order:
    """The changes that are placed and refused so far."""

    def __init__(self, situation: Situation) -> None:
        self.placed: list[Change] = []
        self.refused: list[Blocked] = []
        self._resources = [row(situation) for row in RESOURCES]
        self._to_come = {_key(c): c for c in situation.changes if not c.is_shown_only}
        self._behind: defaultdict[Key, list[Change]] = defaultdict(list)  # whom they wait for

    def turn(self, change: Change) -> tuple[bool, str, int, tuple[int, ...], ObjectRef]:
        """What frees comes first: of those that run, the ones that shrink. What moves away waits
        until its successor answers."""
        moves = change.action is Action.MOVE
        place = _PLACE.get(change.action, _STARTS)
        if change.impact.restart is Restart.HOT:  # loads models again, as a replacement does
            place = _PLACE[Action.REPLACE]
        grow = () if moves else tuple(resource.grows_by(change) for resource in self._resources)
        return (moves, change.target, place, grow, change.ref)

    def settle(self, change: Change) -> None:
        """Place or refuse a change, and then those that waited for it."""
        if change.is_shown_only:
            self.placed.append(change)
            return
        due = deque([change])
        while due:
            change = due.popleft()
            if _key(change) not in self._to_come:  # went at once
                continue
            match self._reserve(change):
                case After((first, *_)):
                    self._behind[(change.target, first)].append(change)
                    continue
                case Blocked() as refused:
                    self.refused.append(refused)
                    settled = [change]
                case [*steps]:
                    settled = self._place(steps)
            for key in map(_key, settled):
                self._to_come.pop(key, None)
                due.extend(self._behind.pop(key, ()))

    def _place(self, steps: Iterable[Change]) -> list[Change]:
        found = []
        for step in steps:
            found.append(replace(step, impact=replace(step.impact, order=len(self.placed))))
            self.placed.append(found[-1])
        return found

    def _reserve(self, change: Change) -> list[Change] | After | Blocked:
        """The change with all that it takes, after moves that make room for it at once: such a move
        would have waited for its successor."""
        gone: list[Change] = []
        while True:
            got = self._take(change)
            if isinstance(got, Change):
                return [*gone, got]
            moves = (
                [self._to_come[change.target, ref] for ref in got.refs]
                if isinstance(got, After)
                else []
            )
            if not moves or any(move.action is not Action.MOVE for move in moves):
                self._undo(len(gone))
                return got
            for move in moves:
                step = self._take(replace(move, reason="MovedAtOnce"))
                assert isinstance(step, Change), "what leaves takes nothing"
                gone.append(step)

    def _take(self, change: Change) -> Change | After | Blocked:
        """Of every resource, or of none."""
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
