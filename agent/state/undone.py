"""What the last pass left undone on this node, on disk for who only looks: what is blocked, what
waits for another node, what could not be done. A disk that takes no more costs this view only."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent.state.directory import StateDir
from reconciler.api.meta import ObjectRef
from reconciler.atomic import atomic_write
from reconciler.core.observation import Instance, Pending
from reconciler.core.plan import Blocked
from reconciler.core.target import Outcome, Result
from reconciler.ownfile import glance

NOT_APPLIED = "NotApplied"  # the attempt failed; the next pass tries again


@dataclass(frozen=True, slots=True)
class Undone:
    """The reason that a service differs from its declaration. `is_blocked`: it is blocked on the
    node where it is declared. A copy that awaits its successor is shown with that reason."""

    ref: ObjectRef
    reason: str
    message: str
    is_blocked: bool


def undone_of(blocked: Iterable[Blocked], outcomes: Iterable[Outcome]) -> tuple[Undone, ...]:
    """What one pass left undone."""
    blocked_services = (
        Undone(ref, item.reason, item.message, is_blocked=item.home is None)
        for item in blocked
        for ref in (item.ref, *item.holds)
        if ref.kind == "InferenceService"
    )
    return tuple(
        sorted({*blocked_services, *_attempted(outcomes)}, key=lambda u: (u.ref, u.reason))
    )


def with_undone(instances: Iterable[Instance], undone: Iterable[Undone]) -> tuple[Instance, ...]:
    """Instances with what they wait for to become as they are declared."""
    waits: Mapping[ObjectRef, Pending] = {u.ref: Pending(u.reason, u.message) for u in undone}
    return tuple(i if i.pending else replace(i, pending=waits.get(i.ref)) for i in instances)


def read_undone(state: StateDir) -> tuple[Undone, ...]:
    """What its owner noted last; nothing where that is not known, or damaged."""
    return glance(_path(state), _rows) or ()


def note_undone(state: StateDir, undone: tuple[Undone, ...]) -> None:
    """Written where it is news."""
    if undone == read_undone(state):
        return
    rows = [[list(u.ref), u.reason, u.message, u.is_blocked] for u in undone]
    with contextlib.suppress(OSError):
        atomic_write(_path(state), json.dumps(rows).encode(), durable=False)


def _attempted(outcomes: Iterable[Outcome]) -> Iterator[Undone]:
    for outcome in outcomes:
        change = outcome.change
        if outcome.result is Result.FAILED:
            yield Undone(change.ref, NOT_APPLIED, outcome.message, is_blocked=False)
        elif outcome.result is Result.SKIPPED and outcome.message and change.home:
            yield Undone(change.ref, change.reason, outcome.message, is_blocked=False)


def _path(state: StateDir) -> Path:
    return state.desired / "undone.json"


def _rows(data: Iterable[Any]) -> tuple[Undone, ...]:
    return tuple(
        Undone(ObjectRef(*map(str, ref)), str(reason), str(message), bool(is_blocked))
        for ref, reason, message, is_blocked in data
    )
