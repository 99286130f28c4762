"""Why a service is where it is: every node with its verdict, and its memory. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.capacity.admission import Admission, Facts, admit, reason
from reconciler.capacity.estimates import Estimates
from reconciler.fleet import Fleet
from reconciler.placement import Assignment
from reconciler.placement.candidate import candidate
from reconciler.placement.misfit import misfit
from reconciler.workload import Workload


@dataclass(frozen=True, slots=True)
class Verdict:
    """One node: whether the service fits there, and the reasons for people."""

    node: str
    fits: bool
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """`workloads` are the places that it has; empty while it is blocked, and `held` says why.

    `sized` is the service on its node, or on the first that could take it: what it would be.
    """

    service: InferenceService
    verdicts: tuple[Verdict, ...]
    workloads: tuple[Workload, ...]
    held: tuple[str, ...]
    sized: Workload | None


def explain_service(
    service: InferenceService, fleet: Fleet, facts: Facts, assignment: Assignment
) -> Explanation:
    """Look at every node of the fleet with the eyes of one service."""
    workloads = tuple(w for w in assignment.workloads if w.ref == service.ref)
    held = tuple(
        f"{h.finding.rule}: {h.finding.message}"
        for h in assignment.held
        if service.ref in h.services
    )
    admissions = {a.node.metadata.name: a for a in assignment.admissions}
    verdicts = tuple(
        _verdict(service, node, fleet, facts, admissions) for node in fleet.all(FleetNode)
    )
    sized = workloads[0] if workloads else _as_it_would_be(service, fleet, facts)
    return Explanation(service, verdicts, workloads, held, sized)


def _verdict(
    service: InferenceService,
    node: FleetNode,
    fleet: Fleet,
    facts: Facts,
    admissions: dict[str, Admission],
) -> Verdict:
    name = node.metadata.name
    if why := misfit(service, node, fleet):
        return Verdict(name, False, (why[2],))
    there = admissions[name]
    if any(s.workload.ref == service.ref for s in there.admitted):
        return Verdict(name, True, ("it is placed here",))
    alone = admit(node, [candidate(service, node, fleet)], facts, Estimates())
    for sized in alone.admitted + alone.refused:
        if why_not := reason(sized, there):
            return Verdict(name, False, (why_not,))
    return Verdict(name, True, ("it could run here",))


def _as_it_would_be(service: InferenceService, fleet: Fleet, facts: Facts) -> Workload | None:
    """On the first node that its rules allow, whether or not it fits there."""
    for node in fleet.all(FleetNode):
        if not misfit(service, node, fleet):
            alone = admit(node, [candidate(service, node, fleet)], facts, Estimates())
            return next(s.workload for s in alone.admitted + alone.refused)
    return None
