"""In which order the changes of a plan happen, and what they do to each node's resources. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reconciler.api.meta import ObjectRef
from reconciler.core.node_memory import NodeMemory
from reconciler.core.observation import Observation
from reconciler.core.plan import Action, Blocked, Change, Restart
from reconciler.core.resource import FindSized, Resource, Row, Situation, nothing_sized

RESOURCES: tuple[Row, ...] = (NodeMemory,)
"""What the changes of a node take and free."""

_ORDER = {Action.DELETE: 0, Action.STOP: 0, Action.UPDATE: 1, Action.REPLACE: 2, Action.DRIFT: 2}
_STARTS = 3
_MOVES = 4  # what leaves waits until its successor answers


def order_changes(
    changes: list[Change], observed: Observation, sized: FindSized = nothing_sized
) -> tuple[list[Change], list[Blocked]]:
    """Give every change its place in the order and what it does to its node's resources.

    Each resource is asked in turn; what one of them has too little for is held back, and nothing is
    reserved for it. What frees comes first.
    """
    situation = Situation(changes, observed, sized)
    resources = [row(situation) for row in RESOURCES]
    ordered: list[Change] = []
    unfit: list[Blocked] = []
    gone: set[tuple[str, ObjectRef]] = set()
    for change in sorted(changes, key=lambda change: _turn(change, resources)):
        if (change.target, change.ref) in gone:
            continue
        if change.is_shown_only:
            ordered.append(change)
            continue
        match _reserved(change, resources):
            case Blocked() as refused:
                unfit.append(refused)
            case steps:
                gone |= {(step.target, step.ref) for step in steps[:-1]}
                ordered += [_placed(step, len(ordered) + n) for n, step in enumerate(steps)]
    return ordered, unfit


def _turn(
    change: Change, resources: Sequence[Resource]
) -> tuple[bool, str, int, tuple[int, ...], ObjectRef]:
    """What frees comes first: of those that run, the ones that shrink. Moves come last of all."""
    moves = change.action is Action.MOVE
    grow = () if moves else tuple(resource.grows_by(change) for resource in resources)
    place = _ORDER.get(change.action, _MOVES if moves else _STARTS)
    if change.impact.restart is Restart.HOT:  # loads models again, as a replacement does
        place = _ORDER[Action.REPLACE]
    return (moves, change.target, place, grow, change.ref)


def _reserved(change: Change, resources: Sequence[Resource]) -> list[Change] | Blocked:
    """The change with all that it takes, after what goes to make room for it; or who refuses it."""
    at_once: list[Change] = []
    for turn, resource in enumerate(resources):
        match resource.take(change):
            case Blocked() as refused:
                for earlier in resources[:turn]:
                    earlier.undo()
                return refused
            case taken:
                at_once += taken.at_once
                change = taken.change
    return [*at_once, change]


def _placed(change: Change, order: int) -> Change:
    return replace(change, impact=replace(change.impact, order=order))
