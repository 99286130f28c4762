"""A cluster without a server, and whole passes over it: what a revision wants there, the plan for
its services and objects, and the objects afterwards as a server would keep them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from reconciler.api.meta import ObjectRef
from reconciler.core.observation import Location, Observation, TargetState
from reconciler.core.plan import Action, Plan
from reconciler.kube.apply.objects import object_id
from reconciler.kube.diff.planning import Scope, plan_objects
from reconciler.kube.object_set import ObjectSet
from reconciler.kube.objects import Manifest, ObjectId
from reconciler.kube.render.rendering import ObjectRenderer
from reconciler.kube.running.instances import instances
from reconciler.kube.status.refusals import memory_refusals
from reconciler.kube.status.status import service_status
from reconciler.loop.desired import CachedFacts, no_facts
from reconciler.memo import Memo
from tests.support.cluster_views import CLUSTER, desired, view
from tests.support.kube_live import as_applied

TARGET = f"cluster/{CLUSTER}"
Files = Mapping[str, str | bytes]


@dataclass(slots=True)
class PureCluster:
    """`live` is what is there. One apply leaves an object exactly as it was applied."""

    known: CachedFacts = no_facts
    live: dict[ObjectId, Manifest] = field(default_factory=dict)
    stood: dict[ObjectRef, Location] = field(
        default_factory=dict
    )  # as the parent of the set has it

    def wanted(self, files: Files) -> dict[ObjectId, Manifest]:
        """What a revision wants to be there."""
        return dict(ObjectRenderer(CLUSTER).wanted(desired(files, self.known)).objects)

    def plan(self, files: Files, confirmed: Iterable[str] = (), *, reachable: bool = True) -> Plan:
        """Of the services and of their objects, as one plan."""
        want, confirmed = desired(files, self.known), tuple(confirmed)
        wanted = ObjectRenderer(CLUSTER).wanted(want)
        meant = {w.ref: w for w in want.assignment.workloads if w.target == TARGET}
        state = TargetState(
            TARGET,
            reachable=reachable,
            renders=wanted.renders,
            incomplete=wanted.incomplete,
            refused=memory_refusals(meant, ObjectSet.of(self.live), wanted.objects, Memo()),
        )
        running = instances(TARGET, self.live, meant, self.stood) if reachable else ()
        services = want.plan(Observation({TARGET: state}, running), confirmed)
        if not reachable:
            return services
        scope = Scope(TARGET, wanted.fleet, stood=self.stood, incomplete=wanted.incomplete)
        policy = want.policy(confirmed)
        found = plan_objects(scope, services, wanted.objects, self.live, policy, want)
        return services.joined(found.changes, found.blocked, {TARGET: found.unchanged})

    def apply(self, plan: Plan) -> None:
        """Carry out what a plan says of objects."""
        for change in plan.changes:
            if change.object is None or change.is_shown_only or change.manifest is None:
                continue
            if change.action is Action.DELETE:
                del self.live[object_id(change)]
            else:
                self.live[object_id(change)] = as_applied(change.manifest)

    def bring_to(self, files: Files) -> Plan:
        """Plan and apply; the plan."""
        plan = self.plan(files)
        self.apply(plan)
        origins = desired(files, self.known).fleet.origins
        self.stood = {ref: Location(o.path, o.line, None) for ref, o in origins.items()}
        return plan

    def report(self, files: Files) -> None:
        """Write the statuses of services, as the reconciler does after a pass."""
        seen = view(desired(files, self.known), plan=self.plan(files))
        for oid, live in self.live.items():
            if oid.kind == "InferenceService":
                metadata = {"generation": 1, **live["metadata"]}
                there = {**live, "metadata": metadata}
                self.live[oid] = {**there, "status": service_status(seen, there, "now")}

    def annotate(self, oid: ObjectId, name: str, value: str) -> None:
        """As a person does with kubectl."""
        made = copy.deepcopy(dict(self.live[oid]))
        made["metadata"].setdefault("annotations", {})[name] = value
        fields = {"f:metadata": {"f:annotations": {f"f:{name}": {}}}}
        row = {"manager": "kubectl-annotate", "operation": "Update", "fieldsV1": fields}
        made["metadata"]["managedFields"].append(row)
        self.live[oid] = made
