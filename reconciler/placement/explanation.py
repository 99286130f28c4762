"""Why a service is where it is: a verdict for every node, and its memory. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import ObjectRef
from reconciler.api.model import Model
from reconciler.api.problem import Severity
from reconciler.capacity.admission import NOBODY, Admission, Facts, Others, admit, reason
from reconciler.capacity.estimates import Estimates
from reconciler.fleet.fleet import Fleet
from reconciler.fleet.workload import Workload
from reconciler.placement.assignment import Assignment, beside_others
from reconciler.placement.candidate import candidate, model_ref
from reconciler.placement.images import image_for
from reconciler.placement.misfit import misfit
from reconciler.placement.pods import image_stated_by
from reconciler.runtimes import RUNTIMES


@dataclass(frozen=True, slots=True)
class NodeFit:
    """One node: whether the service fits there, and the reasons."""

    node: str
    fits: bool
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """`workloads` are its places; empty while it is blocked, with the reason in `held`.

    `warnings` hold nothing back. `sized` is the service on its node, or on the first that could
    take it. `image`, of pods, is the image and who states it.
    """

    service: InferenceService
    verdicts: tuple[NodeFit, ...]
    workloads: tuple[Workload, ...]
    held: tuple[str, ...]
    sized: Workload | None
    image: tuple[str, str] | None = None
    warnings: tuple[str, ...] = ()


def explain_service(
    service: InferenceService,
    fleet: Fleet,
    facts: Facts,
    assignment: Assignment,
    others: Others = NOBODY,
) -> Explanation:
    """Judge every node of the fleet for one service."""
    workloads = tuple(w for w in assignment.workloads if w.ref == service.ref)
    reasons = tuple(
        f"{h.finding.rule}: {h.finding.message}"
        for h in beside_others(assignment, others)
        if service.ref in h.services
    )
    admissions = {a.node.metadata.name: a for a in assignment.admissions}
    verdicts = tuple(
        _verdict(service, node, fleet, facts, admissions, others) for node in fleet.all(FleetNode)
    )
    sized = workloads[0] if workloads else _as_it_would_be(service, fleet, facts)
    image = _image(service, sized, fleet) if sized else None
    warnings = tuple(
        f"{finding.rule}: {finding.message}"
        for finding in assignment.warnings
        if finding.ref == service.ref and finding.severity is Severity.WARNING
    )
    return Explanation(service, verdicts, workloads, reasons, sized, image, warnings)


def _image(service: InferenceService, sized: Workload, fleet: Fleet) -> tuple[str, str] | None:
    node = fleet.get(FleetNode, ObjectRef("FleetNode", "", sized.node))
    if node is None or sized.pool is None:
        return None
    models = [
        m for name in service.model_names if (m := fleet.get(Model, model_ref(service, name)))
    ]
    stated = sized.settings.get("image")
    image = image_for(sized.runtime, stated, sized.pool.accelerator, models)
    by = image_stated_by(service, RUNTIMES[sized.runtime], node, fleet)
    return (image, by) if image else None


def _verdict(
    service: InferenceService,
    node: FleetNode,
    fleet: Fleet,
    facts: Facts,
    admissions: dict[str, Admission],
    others: Others,
) -> NodeFit:
    name = node.metadata.name
    if why := misfit(service, node, fleet):
        return NodeFit(name, False, (why[2],))
    there = admissions[name]
    if any(s.workload.ref == service.ref for s in there.admitted):
        return NodeFit(name, True, ("it is placed here",))
    alone = admit(node, [candidate(service, node, fleet, facts)], facts, Estimates())
    for sized in alone.admitted + alone.refused:
        if why_not := reason(sized, there, others):
            return NodeFit(name, False, (why_not,))
    return NodeFit(name, True, ("it could run here",))


def _as_it_would_be(service: InferenceService, fleet: Fleet, facts: Facts) -> Workload | None:
    """The service on the first node that the rules allow, whether or not it fits there."""
    for node in fleet.all(FleetNode):
        if not misfit(service, node, fleet):
            alone = admit(node, [candidate(service, node, fleet, facts)], facts, Estimates())
            return next(s.workload for s in alone.admitted + alone.refused)
    return None
