"""What each contributor of objects has to say of one cluster in one plan. Pure.

A cluster is planned as a fold over its contributors (`target.ClusterTarget.plan`):

1. Each contributor observes what it needs beside the fleet's own objects (`Contributor.observe`).
2. Once the services are planned it contributes: objects that it wants, and objects that it sets
   aside, with changes that it plans itself (`Contribute`).
3. What they want together is compared with what is there (`diff.planning`).

An object of ours is removed by one of two. What no contributor wants is pruned, within the limits
of `diff.pruning`, unless a contributor sets it aside. What is set aside only that contributor's own
changes remove.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Protocol

from reconciler.core.plan import Change
from reconciler.kube.event_note import EventNote
from reconciler.kube.object_set import ObjectSet
from reconciler.kube.objects import ObjectId, id_of

if TYPE_CHECKING:
    from reconciler.core.observation import Observation
    from reconciler.core.plan import Plan
    from reconciler.core.planner import Policy
    from reconciler.kube.client.api import ApiServer
    from reconciler.kube.informer.observer import Snapshot
    from reconciler.kube.informer.strangers import Strangers
    from reconciler.kube.nearby import AgentsNearby
    from reconciler.kube.render.rendering import DesiredObjects
    from reconciler.loop.desired import Desired


class UnplannedWrites(Protocol):
    """Writes that no plan shows, since the fleet has not changed. Made before the plan's own."""

    def write(self, api: ApiServer) -> None:
        """Never raises: what fails is tried again in the next pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """`wanted` carry the fleet's labels. `set_aside` are the fleet's objects that are neither
    compared nor pruned. `changes` are of objects that are set aside, or made by them. `events` are
    for people. `details` are what was decided, by contributor, for whoever shows it."""

    wanted: ObjectSet = field(default_factory=lambda: ObjectSet({}))
    set_aside: frozenset[ObjectId] = frozenset()
    changes: tuple[Change, ...] = ()
    unplanned: tuple[UnplannedWrites, ...] = ()
    events: tuple[EventNote, ...] = ()
    details: Mapping[str, object] = field(default_factory=dict)

    @property
    def members(self) -> frozenset[ObjectId]:
        """Every object that is, or will be, the fleet's."""
        made = (id_of(c.manifest) for c in self.changes if c.manifest is not None)
        return frozenset((*self.wanted, *self.set_aside, *made))

    def without(self, oids: Iterable[ObjectId]) -> Contribution:
        """The same, wanting none of these."""
        return replace(self, wanted=self.wanted.changed(dict.fromkeys(oids)))

    def joined(self, other: Contribution) -> Contribution:
        """Both; of two that want one object, the other's."""
        return Contribution(
            wanted=self.wanted.joined(other.wanted),
            set_aside=self.set_aside | other.set_aside,
            changes=(*self.changes, *other.changes),
            unplanned=(*self.unplanned, *other.unplanned),
            events=(*self.events, *other.events),
            details={**self.details, **other.details},
        )


def fold(contributions: Iterable[Contribution]) -> Contribution:
    """All of them as one."""
    return reduce(Contribution.joined, contributions, Contribution())


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlanning:
    """What a cluster's objects are planned from. `target` is `cluster/NAME`; `wanted` is what the
    revision alone wants there, `snapshot` and `nearby` what was observed there, `observed` what was
    observed everywhere; `services` is their plan; `strangers` reads what others have under names
    that are wanted, and raises ClusterError."""

    target: str
    desired: Desired
    wanted: DesiredObjects
    snapshot: Snapshot
    nearby: AgentsNearby
    observed: Observation
    services: Plan
    policy: Policy
    strangers: Strangers


Contribute = Callable[[ClusterPlanning], Contribution]


class Contributor(Protocol):
    """One reason for objects to be in a cluster. It lives as long as its ClusterTarget, and may
    keep what it found; one thread at a time uses it."""

    def observe(
        self, wanted: DesiredObjects, snapshot: Snapshot, documents: ObjectSet
    ) -> Contribute:
        """Read what it needs; how it contributes to this pass. `documents` are the fleet's there,
        however they were applied. Raises ClusterError."""


@dataclass(frozen=True, slots=True)
class PureContributor:
    """A contributor that needs nothing beside what every pass observes."""

    contribute: Contribute

    def observe(
        self, wanted: DesiredObjects, snapshot: Snapshot, documents: ObjectSet
    ) -> Contribute:
        return self.contribute
