"""What objects need, found again where something has changed that it follows from. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from reconciler.api.meta import ObjectRef
from reconciler.kube.diff.step import NO_STEPS, ObjectSteps
from reconciler.kube.object_set import ObjectSet
from reconciler.kube.objects import ObjectId

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Grounds:
    """What the steps of all objects follow from: how each should be, and how it is but for its
    status; `about` what the plan says of each service that concerns its objects, `stood` where each
    document stood; `rules` what is the same for all."""

    wanted: Mapping[ObjectId, object] = field(default_factory=dict)
    live: Mapping[ObjectId, object] = field(default_factory=dict)
    about: Mapping[ObjectRef, object] = field(default_factory=dict)
    stood: Mapping[ObjectRef, object] = field(default_factory=dict)
    rules: tuple[object, ...] = ()


class KeptSteps:
    """The steps of one cluster's objects, from pass to pass. An object that is as it should be
    needs nothing, whatever else is so: it is settled until it changes. Used by one thread."""

    def __init__(self) -> None:
        self._grounds = Grounds()
        self._steps: dict[ObjectId, ObjectSteps] = {}  # of those that are not settled

    def stale(self, wanted: ObjectSet, now: Grounds) -> list[ObjectId]:
        """The objects of `wanted` whose steps have to be found again, in order."""
        before, self._grounds = self._grounds, now
        live = _news(before.live, now.live)
        # what an adopted Service needs depends on its Deployment
        live |= {_service_of(oid) for oid in live if oid.kind == "Deployment"}
        stale = {oid for oid in live | _news(before.wanted, now.wanted) if oid in now.wanted}
        self._steps = {oid: steps for oid, steps in self._steps.items() if oid in now.wanted}
        if before.rules != now.rules:
            stale |= self._steps.keys()
        elif refs := _news(before.about, now.about) | _news(before.stood, now.stood):
            stale |= {oid for oid in self._steps if wanted.ref(oid) in refs}
        return sorted(stale)

    def put(self, oid: ObjectId, steps: ObjectSteps, *, is_settled: bool) -> None:
        self._steps.pop(oid, None)
        if not is_settled:
            self._steps[oid] = steps

    def __iter__(self) -> Iterator[ObjectSteps]:
        """What is needed, in the order of the objects."""
        needed = (oid for oid, steps in self._steps.items() if steps != NO_STEPS)
        return (self._steps[oid] for oid in sorted(needed))


def _news(before: Mapping[K, object], now: Mapping[K, object]) -> set[K]:
    """What is there and was not, or is there no longer, or has changed."""
    if before is now:
        return set()
    gone = before.keys() - now.keys()
    return gone | {key for key, state in now.items() if _differs(before.get(key), state)}


def _differs(before: object, now: object) -> bool:
    return before is not now and before != now


def _service_of(deployment: ObjectId) -> ObjectId:
    """The Service that leads to it: they have one name."""
    return ObjectId("", "Service", deployment.namespace, deployment.name)
