"""One valid revision, decided: its objects, who runs where, and where all that stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from reconciler.api.fleetnode import FleetNode
from reconciler.api.meta import ObjectRef
from reconciler.api.model import Model, origin
from reconciler.capacity.admission import Facts, Sized
from reconciler.fleet import Fleet
from reconciler.memory import ModelFacts
from reconciler.placement import Assignment, Held, assign
from reconciler.placement.pods import target_of
from reconciler.plan import Blocked, Instance, Observation, Plan, Source
from reconciler.planner import Policy, make_plan
from reconciler.prune import PruneLimits
from reconciler.source.checkout import Checkout
from reconciler.source.load import Loaded

CachedFacts = Callable[[Model], ModelFacts | None]
"""What this machine knows of a model that is not in the repository: its store's answer."""


def no_facts(_: Model) -> ModelFacts | None:
    """Nothing is known of models outside the repository."""
    return None


@dataclass(frozen=True, slots=True)
class Desired:
    """What a revision wants. `fleet` is never one with errors."""

    checkout: Checkout
    loaded: Loaded
    fleet: Fleet
    facts: Facts
    assignment: Assignment

    @classmethod
    def of(
        cls,
        checkout: Checkout,
        loaded: Loaded,
        fleet: Fleet,
        cached: CachedFacts,
        before: Desired | None = None,
    ) -> Desired:
        """Decide who runs where, from model headers in the repository and in the cache. What is
        like `before` takes no time."""
        facts = _facts(loaded, fleet, cached)
        earlier = before.assignment if before else None
        return cls(checkout, loaded, fleet, facts, assign(fleet, facts, earlier))

    def refreshed(self, cached: CachedFacts) -> Desired:
        """The same revision with what is known of its models now: downloads may have ended."""
        facts = _facts(self.loaded, self.fleet, cached)
        if facts == self.facts:
            return self
        return replace(self, facts=facts, assignment=assign(self.fleet, facts, self.assignment))

    def plan(
        self,
        observed: Observation,
        confirmed: Iterable[str] = (),
        other_fleet: str | None = None,
    ) -> Plan:
        """What to change on the observed targets so that they become this revision. `other_fleet`:
        where what runs there was declared, if that is not where this revision comes from."""
        return make_plan(
            self.fleet.revision,
            self.assignment.workloads,
            [
                self._blocked(held)
                for held in self.assignment.held
                if self._concerns(held, observed)
            ],
            observed,
            self.policy(confirmed, other_fleet),
            self,
            self._sized,
        )

    def policy(self, confirmed: Iterable[str] = (), other_fleet: str | None = None) -> Policy:
        """The Fleet's rules for carrying out a plan."""
        spec = self.fleet.policy
        return Policy(
            drift_enforced=spec.drift == "enforce",
            incomplete=self.fleet.incomplete,
            prune=PruneLimits(
                max_count=spec.prune.max_count,
                max_share=spec.prune.max_share,
                confirmed=frozenset((*spec.confirm, *confirmed)),
                other_fleet=other_fleet,
            ),
        )

    def instances(self) -> tuple[Instance, ...]:
        """This revision in the place of an observation: what it declares, as if it all ran."""
        return tuple(
            Instance(
                ref=workload.ref,
                target=workload.target,
                runtime=workload.runtime,
                inputs=workload.inputs,
                inputs_digest=workload.inputs_digest,
                render_digest=None,
                source=self.where(workload.ref),
                ready=True,
                reason="Declared",
                needs=workload.needs,
                models=tuple(model.name for model in workload.models),
            )
            for workload in self.assignment.workloads
            if not workload.suspended
        )

    def where(self, ref: ObjectRef, field: str = "") -> Source | None:
        """The line of a field of a declared object, or of the object itself."""
        origin = self.fleet.origins.get(ref)
        if origin is None:
            return None
        if field == "spec.sha256" and (file := self._model_file(ref)):
            return Source(file, 1, self.checkout.commit_of(file))
        line = self.loaded.line(ref, field) if field else origin.line
        return Source(origin.path, line, self.checkout.commit_of(origin.path))

    def _sized(self, node: str, ref: ObjectRef) -> Sized | None:
        """A service as it was sized for the node that takes it."""
        admissions = (a for a in self.assignment.admissions if a.node.metadata.name == node)
        return next(
            (s for admission in admissions for s in admission.admitted if s.workload.ref == ref),
            None,
        )

    def _model_file(self, ref: ObjectRef) -> str | None:
        """The file in the repository that holds a Model's bytes, where no line pins them."""
        model = self.fleet.get(Model, ref)
        if model is None or model.spec.sha256 is not None:
            return None
        stored = self.fleet.files.get(origin(model.spec.source, model.spec.files))
        return stored.path if stored else None

    def removal(self, last: Source | None) -> Source | None:
        """The line that an object last stood on, with the commit that removed it."""
        if last is None:
            return None
        return Source(last.file, last.line, self.checkout.commit_of(last.file))

    def _concerns(self, held: Held, observed: Observation) -> bool:
        """Whether a hold is any business of the targets that are looked at. What runs there stays
        as it runs, wherever it is meant to go."""
        refs = {held.finding.ref, *held.services}
        if any(instance.ref in refs for instance in observed.instances):
            return True
        if held.elsewhere:
            return False
        return not held.nodes or any(self.target(n) in observed.targets for n in held.nodes)

    def target(self, node: str) -> str:
        """The target that runs what is placed on a FleetNode, by its name."""
        declared = self.fleet.get(FleetNode, ObjectRef("FleetNode", "", node))
        return target_of(declared) if declared else f"node/{node}"

    def _blocked(self, held: Held) -> Blocked:
        finding = held.finding
        cause = self.where(finding.ref, finding.field)
        return Blocked(finding.ref, finding.rule, finding.message, cause, None, held.services)


def _facts(loaded: Loaded, fleet: Fleet, cached: CachedFacts) -> Facts:
    facts = dict(loaded.facts)
    for model in fleet.all(Model):
        if model.ref not in facts and (found := cached(model)):
            facts[model.ref] = found
    return facts
