"""The Jobs that measure how fast models write, and the ConfigMaps with their results."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from reconciler.core.target import REMOVALS
from reconciler.kube.benchmarks.observer import BenchmarkObservation, BenchmarkObserver
from reconciler.kube.benchmarks.planning import PlannedBenchmarks, plan_benchmarks
from reconciler.kube.contribution import ClusterPlanning, Contribute, Contribution
from reconciler.kube.event_note import EventNote

if TYPE_CHECKING:
    from reconciler.api.meta import ObjectRef
    from reconciler.core.plan import Plan
    from reconciler.kube.client.api import ApiServer
    from reconciler.kube.informer.observer import Snapshot
    from reconciler.kube.object_set import ObjectSet
    from reconciler.kube.observed import PlannedCluster
    from reconciler.kube.render.rendering import DesiredObjects

_NAME = "benchmarks"


class BenchmarkContributor:
    """It sets all its objects aside and plans their changes itself: a Job goes once its result is
    written, or nobody needs it; a result goes once its model is not served any more, or there is a
    newer one. None of a service that changes, and none where the revision may lack what is
    missing."""

    def __init__(self, api: ApiServer) -> None:
        self._observe = BenchmarkObserver(api)

    def observe(
        self, wanted: DesiredObjects, snapshot: Snapshot, documents: ObjectSet
    ) -> Contribute:
        observed = self._observe(wanted.placed, snapshot.objects, documents)
        return partial(_contribute, observed)


def planned_benchmarks(cluster: PlannedCluster) -> PlannedBenchmarks:
    """What was planned of measurements in a cluster; nothing, where nobody measures."""
    details = cluster.contribution.details.get(_NAME)
    return details if isinstance(details, PlannedBenchmarks) else PlannedBenchmarks()


def _contribute(observed: BenchmarkObservation, at: ClusterPlanning) -> Contribution:
    planned = plan_benchmarks(
        observed,
        at.snapshot.objects,
        target=at.target,
        fleet=at.wanted.fleet,
        now=time.time(),
        changing=_unsettled(at.services, at.target),
        may_remove=not (at.policy.incomplete or at.wanted.incomplete),
        causes=at.desired,
    )
    return Contribution(
        set_aside=frozenset(observed.objects),
        changes=planned.changes,
        events=tuple(_failures(planned)),
        details={_NAME: planned},
    )


def _failures(planned: PlannedBenchmarks) -> Iterator[EventNote]:
    """Their words stay the same until the next attempt."""
    for ref, why in planned.decision.failed.items():
        yield EventNote(ref, "BenchmarkFailed", "Measure", why, is_bad=True)


def _unsettled(services: Plan, target: str) -> frozenset[ObjectRef]:
    """Services that change there or stay as they are, but for those that go."""
    own = (c for c in services.changes if c.target == target)
    done = (c for c in own if not c.is_shown_only)  # an upgrade may be deferred for weeks
    changing = {c.ref for c in done if c.action not in REMOVALS or c.reason == "MovedAway"}
    blocked = (b for b in services.blocked if b.target in (None, target))
    return frozenset(changing | {ref for b in blocked for ref in (b.ref, *b.holds)})
