"""What a cluster says of a fleet while nothing of it can be followed.

A process that has just started, finds no revision that it could follow, and is the one to apply the
fleet, looks at nothing: what was said of its services before may not be so any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from reconciler.api.meta import GROUP
from reconciler.kube.inventory import parent_name, selector
from reconciler.kube.leaderelection.lease import Holder, Times
from reconciler.kube.objects import (
    OWNED_KINDS,
    SYSTEM_NAMESPACE,
    Manifest,
    ObjectId,
    id_of,
    ref_of,
)
from reconciler.kube.status.attempts import Attempts
from reconciler.kube.status.conditions import DRIFTED, READY, RECONCILING, Condition, set_conditions
from reconciler.kube.status.events import EventWriter
from reconciler.kube.status.fleet_status import (
    FLEET_FIELDS,
    NOTHING_FOLLOWED,
    FleetView,
    fleet_events,
    fleet_status,
)
from reconciler.kube.status.status import SERVICE_FIELDS, owned
from reconciler.kube.status.writer import DesiredStatus, StatusWriter
from reconciler.loop import Listener
from reconciler.timestamps import timestamp

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer
    from reconciler.loop import Following

_AGAIN_S = 60.0  # the same is said again so often: somebody may have applied it meanwhile

_NOT_KNOWN = (READY, DRIFTED)


class IdleListener(Listener):
    """Says so after each pass in which nothing was followed, once the Fleet's name is known."""

    def __init__(
        self, reports: Sequence[IdleReport], on_written: Callable[[int, int], None]
    ) -> None:
        """`on_written` learns how many statuses and events were written."""
        self._reports = tuple(reports)
        self._on_written = on_written
        self._attempts = Attempts()
        self._idle: Following | None = None

    def on_fetched(self, following: Following) -> None:
        is_idle = following.followed is None and following.noted_fleet
        self._idle = following if is_idle else None

    def on_ended(self, seconds: float) -> None:
        if self._idle is None:
            return
        for report in self._reports:
            self._attempts.attempt(report.cluster, partial(self._report, report, self._idle))

    def _report(self, report: IdleReport, following: Following) -> None:
        self._on_written(*report.report(following, following.noted_fleet))


class IdleReport:
    """Says so in one cluster, where nobody else applies the fleet: for as long as that takes it
    holds the Lease, and no longer, as another process may have a revision to go on from."""

    def __init__(self, api: ApiServer, identity: str, times: Times) -> None:
        self.cluster = api.name
        self._api = api
        self._identity = identity
        self._times = times
        self._statuses = StatusWriter(api)
        self._events = EventWriter(api, identity)
        self._holder: tuple[str, Holder] | None = None
        self._reported: tuple[Following, float] | None = None

    def report(self, following: Following, fleet: str) -> tuple[int, int]:
        """How many statuses and events were written for the fleet of that name. Raises
        ClusterError."""
        now = time.monotonic()
        if self._reported and self._reported[0] == following and now - self._reported[1] < _AGAIN_S:
            return 0, 0
        holder = self._claim(fleet)
        if not holder.attempt():
            return 0, 0
        try:
            counts = self._report(following, fleet)
        finally:
            holder.release()
        self._reported = following, now
        return counts

    def _report(self, following: Following, fleet: str) -> tuple[int, int]:
        now = timestamp(time.time())
        kind = OWNED_KINDS[GROUP, "InferenceService"]
        services = self._api.list(kind, selector=selector(fleet)).items
        entries = [DesiredStatus(s, unknown_status(s, now), SERVICE_FIELDS) for s in services]
        live = self._api.get(ObjectId(GROUP, "Fleet", "", fleet))
        if live is None:
            return self._statuses.write(entries), 0
        was = live.get("status") or {}
        view = FleetView(
            following,
            NOTHING_FOLLOWED,
            was.get("appliedRevision"),
            was.get("observedGeneration"),
        )
        happened = tuple(fleet_events(view, live))
        written = self._statuses.write(
            [DesiredStatus(live, fleet_status(view, live, now), FLEET_FIELDS), *entries]
        )
        return written, self._events.write(happened, {ref_of(id_of(live)): live})

    def _claim(self, fleet: str) -> Holder:
        if self._holder is None or self._holder[0] != fleet:
            name = parent_name(fleet)
            holder = Holder(self._api, name, SYSTEM_NAMESPACE, self._identity, times=self._times)
            self._holder = fleet, holder
        return self._holder[1]


def unknown_status(live: Manifest, now: str) -> dict[str, Any]:
    """Pure. The status of a live InferenceService that nobody looks at: as it was, but for what
    may have changed since."""
    status = owned(live.get("status") or {}, SERVICE_FIELDS)
    before = status.get("conditions") or ()
    kept = [_as_it_was(c) for c in before if c.get("type") not in (*_NOT_KNOWN, RECONCILING)]
    unknown = [
        Condition(kind, "Unknown", NOTHING_FOLLOWED.reason, NOTHING_FOLLOWED.message)
        for kind in _NOT_KNOWN
    ]
    generation = status.get("observedGeneration")  # nobody has looked at a later one
    return status | {"conditions": set_conditions(before, [*unknown, *kept], generation, now)}


def _as_it_was(condition: Mapping[str, Any]) -> Condition:
    return Condition(
        condition["type"], condition["status"], condition["reason"], condition.get("message", "")
    )
