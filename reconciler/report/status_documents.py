"""Statuses of one fleet as JSON, one after the other: what did not change is kept. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from reconciler.api.meta import ObjectRef
from reconciler.core.observation import Instance
from reconciler.memo import Memo, Same
from reconciler.report.status import DeclaredService, Status
from reconciler.report.status_json import node_json, service_json


class StatusDocuments:
    """`status_json` of all services. Most targets say what they said before, so that they are
    compared first, and the services of the others one by one. Used by one thread."""

    def __init__(self) -> None:
        self._targets: dict[str | None, _Target] = {}
        self._nodes: dict[str, dict[str, Any]] = {}
        self._services: Memo[ObjectRef, dict[str, Any]] = Memo()
        self._written: dict[ObjectRef, dict[str, Any]] = {}

    def of(self, status: Status) -> dict[str, Any]:
        states, refs, before = status.observed.targets, status.refs, self._targets
        now = {target: _target(status, target) for target in status.targets}
        changed = {t for t in (*before, *now) if before.get(t) != now.get(t)}
        self._nodes = {
            t: node_json(status, state) if t in changed else self._nodes[t]
            for t, state in states.items()
        }
        touched = {ref for t in changed for each in (before, now) for ref in _refs(each.get(t))}
        kept = self._written
        self._services.keep(refs)
        self._written = {
            ref: kept[ref] if ref in kept and ref not in touched else self._service(status, ref)
            for ref in sorted(refs)
        }
        self._targets = now
        return {
            "revision": status.revision,
            "nodes": [{**self._nodes[t], "seenAt": s.seen_at} for t, s in sorted(states.items())],
            "services": [*self._written.values()],
        }

    def _service(self, status: Status, ref: ObjectRef) -> dict[str, Any]:
        instances = status.of(ref)
        around = [
            (
                status.tokens_per_second(i),
                status.requests_in_flight(i),
                status.sharers(i.target),
                status.benchmarks(i),
            )
            for i in instances
        ]
        given = (instances, status.meant(ref), around)
        return self._services.find(ref, given, lambda: service_json(status, ref))


class _Target(NamedTuple):
    """All that its JSON and that of its services are made of, but when it was seen: a measurement
    grows too old with the next change."""

    state: tuple[object, ...]
    instances: list[Instance]
    declared: list[DeclaredService]


def _target(status: Status, target: str | None) -> _Target:
    declared = status.declared_on(target)
    state = status.observed.targets.get(target or "")
    if target is None or state is None:
        return _Target((), [], declared)
    seen = (state.reachable, state.message, state.missing, state.revision, state.pools)
    about = (target in status.left, seen, state.runtimes, Same(status.states.get(target)))
    measured = (status.speeds.get(target), status.measured.get(target))
    return _Target((*about, *measured), status.taking(target), declared)


def _refs(target: _Target | None) -> set[ObjectRef]:
    if target is None:
        return set()
    return {i.ref for i in target.instances} | {d.ref for d in target.declared}
