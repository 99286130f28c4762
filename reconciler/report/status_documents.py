"""Statuses of one fleet as JSON, one after the other: what did not change is kept. Pure."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from operator import attrgetter
from typing import Any, NamedTuple

from reconciler.api.meta import ObjectRef, service_ref
from reconciler.api.nodestate import NodeState
from reconciler.core.observation import Instance
from reconciler.report.status import DeclaredService, Status
from reconciler.report.status_json import node_json, service_json

_HOUR_S = 3600.0


class StatusDocuments:
    """`status_json` of all services. Most targets say what they said before, so that they are
    compared first, and then the services of the others one by one. Used by one thread."""

    def __init__(self) -> None:
        self._targets: dict[str | None, _Target] = {}
        self._shown: dict[str | None, _Shown] = {}
        self._nodes: dict[str, dict[str, Any]] = {}
        self._written: dict[ObjectRef, dict[str, Any]] = {}

    def of(self, status: Status) -> dict[str, Any]:
        states, before, was = status.observed.targets, self._targets, self._shown
        self._targets = now = {t: _target(status, t) for t in status.targets}
        changed = {t for t in (*before, *now) if before.get(t) != now.get(t)}
        self._shown = shown = {t: _shown(status, t) if t in changed else was[t] for t in now}
        touched = {ref for t in changed for ref in _differing(was.get(t), shown.get(t))}
        self._nodes = {
            t: node_json(status, state) if t in changed else self._nodes[t]
            for t, state in states.items()
        }
        self._write(status, touched)
        return {
            "revision": status.revision,
            "nodes": [{**self._nodes[t], "seenAt": s.seen_at} for t, s in sorted(states.items())],
            "services": [*self._written.values()],
        }

    def _write(self, status: Status, touched: set[ObjectRef]) -> None:
        kept, refs = self._written, status.refs
        if refs != kept.keys():  # else they are in order
            kept = {ref: kept.get(ref, {}) for ref in sorted(refs)}
        self._written = kept | {ref: service_json(status, ref) for ref in touched & refs}


class _Target(NamedTuple):
    """All that its JSON and that of its services are made of, but when it was seen."""

    state: tuple[object, ...]
    instances: list[Instance]
    declared: list[DeclaredService]


class _Answer:
    """What an agent answered, equal to itself alone. It is large, and not kept alive for this."""

    __slots__ = ("_answer",)

    def __init__(self, answer: NodeState) -> None:
        self._answer = weakref.ref(answer)

    def __eq__(self, other: object) -> bool:
        mine = self._answer()
        return isinstance(other, _Answer) and mine is not None and mine is other._answer()

    __hash__ = None  # type: ignore[assignment]  # compared, and never a key


def _target(status: Status, target: str | None) -> _Target:
    declared = status.declared_on(target)
    state = status.observed.targets.get(target or "")
    if target is None or state is None:
        return _Target((), [], declared)
    answer = status.states.get(target)
    seen = (state.reachable, state.message, state.missing, state.revision, state.pools)
    about = (target in status.left, seen, state.runtimes, answer and _Answer(answer))
    measured = (status.speeds.get(target), status.measured.get(target), _hour(status, target))
    # what was read of an answer is the same while that is
    return _Target((*about, *measured), [] if answer else status.taking(target), declared)


class _Shown(NamedTuple):
    """What the JSON of its services is made of: `around` is of each of them, `services` what is
    each one's own, in a target's order, its ref first; `figures` what changes most, by label."""

    around: tuple[object, ...]
    services: list[tuple[Any, ...]]
    figures: list[tuple[Any, ...]]


# What is shown of an instance. Of its inputs, which are large, their digest says enough.
SHOWN_FIELDS = (
    *("ref", "runtime", "inputs_digest", "ready", "reason", "message", "since", "pid", "port"),
    *("endpoint", "needs", "models", "served", "measured", "pending"),
)
_of_instance = attrgetter(*SHOWN_FIELDS)
_of_answer = attrgetter("name", "tokens_per_second", "requests_in_flight")


def _shown(status: Status, target: str | None) -> _Shown:
    declared = status.declared_on(target)
    if target is None:
        return _Shown((), [*declared], [])
    measured = (status.results(target), _hour(status, target))
    return _Shown(
        (status.sharers(target), status.runtimes(target), *measured),
        [*declared, *map(_of_instance, status.taking(target))],
        [
            *((ref.label, speed) for ref, speed in status.speeds.get(target, {}).items()),
            *map(_of_answer, status.reported(target)),
        ],
    )


def _hour(status: Status, target: str) -> float | None:
    """Measurements grow too old: they are looked at again with each hour."""
    state = status.observed.targets.get(target)
    if state is None or not status.results(target):
        return None
    return (state.seen_at or 0.0) // _HOUR_S


def _differing(before: _Shown | None, now: _Shown | None) -> set[ObjectRef]:
    """The services whose JSON may be another."""
    if before is None or now is None or not _is_alike(before, now):
        return {service[0] for each in (before, now) if each for service in each.services}
    refs = {service[0] for service in _unequal(before.services, now.services)}
    return refs | {service_ref(each[0]) for each in _unequal(before.figures, now.figures)}


def _is_alike(before: _Shown, now: _Shown) -> bool:
    """Whether they can be compared one by one."""
    sizes = [(len(each.services), len(each.figures)) for each in (before, now)]
    return before.around == now.around and sizes[0] == sizes[1]


def _unequal(old: list[tuple[Any, ...]], new: list[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    if old != new:
        for pair in zip(old, new, strict=True):
            if pair[0] != pair[1]:
                yield from pair
