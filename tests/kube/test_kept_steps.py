"""A pass that keeps what it found plans what one does that knows nothing, whatever has changed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from reconciler.api.meta import API_VERSION
from reconciler.core.observation import Location
from reconciler.core.plan import Action, Blocked, Change, Impact, Plan, Restart
from reconciler.core.planner import Policy
from reconciler.kube.diff.kept_steps import Grounds, KeptSteps
from reconciler.kube.diff.planning import Compared, ObjectPlan, Scope, plan_objects
from reconciler.kube.diff.step import NO_STEPS
from reconciler.kube.inventory import labelled
from reconciler.kube.object_set import ObjectSet, packed
from reconciler.kube.objects import Manifest, ObjectId, id_of
from tests.support.builders import FixedCauses, ref
from tests.support.kube_live import as_applied, edited
from tests.support.kube_world import TARGET, changed, config_map, deployment, service

NAMES = ("a", "b", "c", "d")
CAUSES = FixedCauses()


def objects_of(name: str) -> dict[ObjectId, Manifest]:
    made = (deployment("default", name), service("default", name), config_map("default", name))
    spec = {"modelRef": "phi"}
    document = {"apiVersion": API_VERSION, "kind": "InferenceService", "spec": spec}
    document["metadata"] = {"name": name, "namespace": "default"}
    return {id_of(each): labelled(each, "home", name) for each in (*made, document)}


def all_objects() -> dict[ObjectId, Manifest]:
    return {oid: each for name in NAMES for oid, each in objects_of(name).items()}


@dataclass
class World:
    """What should be, what is, and what the services' plan says, all to be changed at random."""

    chance: random.Random
    wanted: dict[ObjectId, Manifest] = field(default_factory=all_objects)
    live: dict[ObjectId, Manifest] = field(default_factory=dict)
    changes: dict[str, Change] = field(default_factory=dict)
    blocked: dict[str, Blocked] = field(default_factory=dict)
    scope: Scope = field(default_factory=lambda: Scope(TARGET, "home"))
    policy: Policy = field(default_factory=Policy)

    def name(self) -> str:
        return self.chance.choice(NAMES)

    def applied(self) -> None:
        """Some of what is wanted."""
        for oid, manifest in self.wanted.items():
            if self.chance.random() < 0.6:
                self.live[oid] = as_applied(manifest)

    def lost(self) -> None:
        if self.live:
            del self.live[self.chance.choice(sorted(self.live))]

    def edited(self) -> None:
        for oid in sorted(self.live):
            if oid.kind == "Deployment" and self.chance.random() < 0.5:
                replicas = self.chance.randrange(9)
                self.live[oid] = edited(as_applied(self.wanted_like(oid)), "x", replicas=replicas)

    def written(self) -> None:
        """A status."""
        for oid, live in self.live.items():
            metadata = {**live["metadata"], "resourceVersion": str(self.chance.randrange(99))}
            self.live[oid] = {**live, "metadata": metadata, "status": {"replicas": 1}}

    def declared_anew(self) -> None:
        for oid, manifest in objects_of(self.name()).items():
            self.wanted[oid] = manifest
            if oid.kind == "Deployment":
                self.wanted[oid] = changed(manifest, image=f"engine:{self.chance.randrange(3)}")

    def declared_no_more(self) -> None:
        for oid in objects_of(self.name()):
            self.wanted.pop(oid, None)

    def planned(self) -> None:
        name = self.name()
        place = Location("a.yaml", self.chance.randrange(3), None)
        rolls = Impact(restart=self.chance.choice((Restart.NONE, Restart.ROLL)))
        action = self.chance.choice((Action.CREATE, Action.UPDATE))
        self.changes[name] = Change(action, TARGET, ref(name), "Added", place, impact=rolls)

    def planned_no_more(self) -> None:
        self.changes.pop(self.name(), None)

    def held(self) -> None:
        name = self.name()
        reason = self.chance.choice(("Held", "MemoryFits"))
        self.blocked[name] = Blocked(ref(name), reason, "", None, TARGET, (ref(name),))

    def held_no_more(self) -> None:
        self.blocked.pop(self.name(), None)

    def drift(self) -> None:
        self.policy = Policy(drift_enforced=self.chance.random() < 0.5)

    def stood(self) -> None:
        places = {ref(name): Location("old.yaml", 1, None) for name in NAMES[: len(self.changes)]}
        self.scope = replace(self.scope, stood=places)

    def foreign(self) -> None:
        """Somebody takes our labels off."""
        for oid, live in self.live.items():
            if self.chance.random() < 0.2:
                self.live[oid] = {**live, "metadata": {**live["metadata"], "labels": {}}}

    def wanted_like(self, oid: ObjectId) -> Mapping[str, Any]:
        return self.wanted.get(oid) or self.live[oid]

    def plan(self, known: Compared | None) -> ObjectPlan:
        services = Plan("r", (*self.changes.values(),), (*self.blocked.values(),), (), {}, {})
        wanted, live = (
            ObjectSet({oid: packed(each) for oid, each in objects.items()})
            for objects in (self.wanted, self.live)
        )
        return plan_objects(self.scope, services, wanted, live, self.policy, CAUSES, known)


EVENTS: tuple[Callable[[World], None], ...] = (
    World.applied,
    World.lost,
    World.edited,
    World.written,
    World.declared_anew,
    World.declared_no_more,
    World.planned,
    World.planned_no_more,
    World.held,
    World.held_no_more,
    World.drift,
    World.stood,
    World.foreign,
)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_between_passes(seed: int) -> None:
    world, known = World(random.Random(seed)), Compared()

    for _ in range(25):
        for event in world.chance.choices(EVENTS, k=world.chance.randrange(4)):
            event(world)
        assert world.plan(known) == world.plan(None)


def test_a_service_is_looked_at_again_with_the_deployment_that_it_leads_to() -> None:
    wanted, kept = ObjectSet(all_objects()), KeptSteps()
    live: dict[ObjectId, object] = dict.fromkeys(wanted, "as it should be")
    for oid in kept.stale(wanted, Grounds(wanted.states(), live)):
        kept.put(oid, NO_STEPS, is_settled=True)

    news = {oid: "made anew" for oid in wanted if (oid.kind, oid.name) == ("Deployment", "b")}
    again = kept.stale(wanted, Grounds(wanted.states(), {**live, **news}))

    assert {(oid.kind, oid.name) for oid in again} == {("Deployment", "b"), ("Service", "b")}
