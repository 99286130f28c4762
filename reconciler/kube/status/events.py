"""Kubernetes Events for what happened to a service: `kubectl describe` shows them. Pure, except for
the writer at the end.

An event's name is a digest of its content, so that a repeated event is one event with a count, also
across restarts. Events carry no field values: one of them may be a secret.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from reconciler.api.digest import digest
from reconciler.api.meta import DEFAULT_NAMESPACE, ObjectRef
from reconciler.api.reasons import api_reason
from reconciler.core.plan import Action, Blocked, Plan
from reconciler.core.target import Outcome, Result
from reconciler.kube.client.errors import ClusterError, Conflict, NotFound
from reconciler.kube.event_note import EventNote
from reconciler.kube.objects import MANAGER, Manifest, ObjectId
from reconciler.kube.status.conditions import cut
from reconciler.timestamps import timestamp

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer

MOST_NOTE = 1_000  # characters; events.k8s.io/v1 takes 1,024 bytes of ASCII
MOST_AT_ONCE = 50  # in _CROWD_S: a new fleet of 1,000 services need not create 4,000 events
_CROWD_S = 60.0  # what is wrong is counted by itself, and for each pass
QUIET_S = 300.0  # an event is not repeated within this time
_MOST_REMEMBERED = 5_000

# The reason of a completed step, with an explanation.
HAPPENED: Mapping[Action, str] = MappingProxyType(
    {
        Action.CREATE: "Applied",
        Action.UPDATE: "Applied",
        Action.REPLACE: "Replaced",
        Action.MOVE: "Moved",
        Action.DELETE: "Pruned",
        Action.STOP: "Suspended",
        Action.DRIFT: "DriftReverted",
    }
)
_log = logging.getLogger(__name__)


def happenings(plan: Plan, outcomes: Iterable[Outcome], cluster: str) -> Iterator[EventNote]:
    """What a pass did in a cluster, and what it could not do; once per service and reason."""
    steps: dict[tuple[ObjectRef, str], list[str]] = {}
    for outcome in outcomes:
        change = outcome.change
        if change.target != f"cluster/{cluster}" or outcome.result is Result.SKIPPED:
            continue
        failed = outcome.result is Result.FAILED
        reason = "ApplyFailed" if failed else HAPPENED.get(change.action, "Applied")
        what = f"{change.object.kind} {change.object.name}" if change.object else change.ref.kind
        fields = ", ".join(dict.fromkeys(field.path for field in change.fields))
        text = outcome.message if failed else fields
        by = f" by {change.by}" if change.by else ""
        line = f"{change.action} {what}" + (f" ({text})" if text else "") + by
        steps.setdefault((change.ref, reason), []).append(line)
    for (ref, reason), lines in steps.items():
        note = f"{plan.revision[:12]}: {'; '.join(lines)}"
        yield EventNote(ref, reason, "Apply", note, reason == "ApplyFailed")
    for change in plan.changes:
        if change.reason == "Fight" and change.target == f"cluster/{cluster}":
            paths = ", ".join(dict.fromkeys(field.path for field in change.fields))
            name = change.object.name if change.object else change.ref.name
            yield EventNote(change.ref, "Fight", "Plan", f"{name}: {paths} by {change.by}", True)
    for blocked in plan.blocked:
        if blocked.target in (None, f"cluster/{cluster}"):
            yield from _blocked(blocked)


def _blocked(blocked: Blocked) -> Iterator[EventNote]:
    refs = dict.fromkeys((blocked.ref, *blocked.holds))
    for ref in refs:
        if ref.kind == "InferenceService":
            yield EventNote(ref, "Blocked", "Plan", f"{blocked.reason}: {blocked.message}", True)


def event(happening: EventNote, live: Manifest, instance: str, now: str) -> dict[str, Any]:
    """The event for the API. `instance` names this process, `now` is RFC 3339 with microseconds."""
    metadata = live["metadata"]
    note = cut(happening.note.encode("ascii", "replace").decode(), MOST_NOTE - 3)
    event_id = digest([metadata["uid"], happening.reason, note])[:16]
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": f"{metadata['name'][:230]}.{event_id}",
            "namespace": metadata.get("namespace") or DEFAULT_NAMESPACE,
        },
        "eventTime": now,
        "reportingController": MANAGER,
        "reportingInstance": instance[:128],
        "action": happening.action,
        "reason": api_reason(happening.reason),
        "type": "Warning" if happening.is_bad else "Normal",
        "note": note,
        "regarding": {
            "apiVersion": live["apiVersion"],
            "kind": live["kind"],
            "name": metadata["name"],
            "namespace": metadata.get("namespace", ""),
            "uid": metadata["uid"],
            "resourceVersion": metadata.get("resourceVersion", ""),
        },
    }


class EventWriter:
    """Writes the events of one cluster. Failing to write an event is not an error."""

    def __init__(self, api: ApiServer, instance: str) -> None:
        self._api = api
        self._instance = instance
        self._written: dict[str, float] = {}  # name of an event -> when, monotonic
        self._failed = ""

    def write(self, happened: Iterable[EventNote], live: Mapping[ObjectRef, Manifest]) -> int:
        """Returns how many were written. A service that is not in `live` gets none: they could not
        be found."""
        since = time.monotonic() - _CROWD_S
        before = sum(at > since for at in self._written.values())
        counts = {False: before, True: 0}  # by whether something is wrong
        is_cut = False
        for happening in happened:
            if counts[happening.is_bad] >= MOST_AT_ONCE:
                is_cut = True
                continue
            subject = live.get(happening.ref)
            if subject is None:
                continue
            now = timestamp(time.time(), "microseconds")
            made = event(happening, subject, self._instance, now)
            counts[happening.is_bad] += self._write(made)
        if is_cut:
            _log.info("more happened than is worth %d events; the log has it", MOST_AT_ONCE)
        return sum(counts.values()) - before

    def _write(self, made: Mapping[str, Any]) -> bool:
        key, now = f"{made['metadata']['namespace']}/{made['metadata']['name']}", time.monotonic()
        if now - self._written.get(key, float("-inf")) < QUIET_S:
            return False
        if len(self._written) >= _MOST_REMEMBERED:
            self._written.clear()
        try:
            self._create(made)
        except ClusterError as error:
            if str(error) != self._failed:
                self._failed = str(error)
                _log.warning("no event: %s", error)
            return False
        self._written[key] = now  # only now: an event that failed is written the next time
        return True

    def _create(self, made: Mapping[str, Any]) -> None:
        try:
            self._api.create(made)
        except Conflict:
            self._count(made)

    def _count(self, made: Mapping[str, Any]) -> None:
        """Increase the count of the existing event."""
        name, namespace = made["metadata"]["name"], made["metadata"]["namespace"]
        oid = ObjectId("events.k8s.io", "Event", namespace, name)
        event = self._api.get(oid)
        if event is None:  # it has expired just now
            return
        count = (event.get("series") or {}).get("count", 1) + 1
        series = {"count": count, "lastObservedTime": made["eventTime"]}
        try:
            self._api.patch(oid, [{"op": "add", "path": "/series", "value": series}])
        except NotFound:
            return
