"""What should run of a revision, and why it does not, where that is known. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.agents.arrival import Verdicts
from reconciler.core.observation import Observation, starts_again
from reconciler.core.plan import Blocked, Plan
from reconciler.fleet.workload import Workload
from reconciler.loop.desired import Desired
from reconciler.placement.assignment import Hold
from reconciler.report.status import DeclaredService


def declared_services(
    desired: Desired,
    plan: Plan,
    observed: Observation,
    verdicts: Mapping[str, Verdicts],
    node: str | None = None,
) -> tuple[DeclaredService, ...]:
    """What should run on `node`, or anywhere; what cannot, with the reason: the plan's, which knows
    what else uses the memory."""
    refusals = {ref: b for b in plan.blocked for ref in (*b.holds, b.ref) if not b.target}
    services = [
        DeclaredService(ref, *_why(h, refusals.get(ref)), on, _cluster(desired, on))
        for h in desired.assignment.holds
        if node is None or not h.nodes or node in h.nodes
        for ref in h.services
        for on in (*sorted(h.nodes),) or (None,)
        if node is None or on in (None, node)
    ]
    services = [d for d in services if d.cluster is None or d.target in observed.targets]
    refs = {d.ref for d in services}
    placed = [
        _placed(workload, observed, verdicts)
        for workload in desired.assignment.workloads
        if node in (None, workload.node) and workload.ref not in refs
        if workload.cluster is None
        or workload.target in observed.targets  # else it was not asked for
    ]
    return (*placed, *services)


def _why(hold: Hold, refusal: Blocked | None) -> tuple[str, str]:
    if refusal is not None and refusal.reason == hold.finding.rule:
        return refusal.reason, refusal.message
    return hold.finding.rule, hold.finding.message


def _placed(
    workload: Workload, observed: Observation, verdicts: Mapping[str, Verdicts]
) -> DeclaredService:
    """Why a service that has a node may not run there, as far as that is known."""
    target = workload.target
    state, refused = observed.targets.get(target), verdicts.get(target)
    verdict = refused.get(workload.ref) if refused else None
    reason, message, since = "NotRunning", "", None
    if state is not None and not state.reachable:
        reason = "Unknown"
    elif workload.suspended:
        reason, message = "Suspended", ""
    elif verdict is not None:
        reason, message = verdict
    elif state is not None and state.stopped and state.keeps_stopped(workload):
        reason, message = "StoppedByHand", starts_again(workload.ref, state)
        since = state.stopped_since.get(workload.ref)
    elif state is not None and workload.runtime in state.missing and not _runs(workload, observed):
        reason, message = "EngineMissing", state.missing[workload.runtime]
    return DeclaredService(workload.ref, reason, message, workload.node, workload.cluster, since)


def _runs(workload: Workload, observed: Observation) -> bool:
    """Whether it is there: then an engine is, whether or not this command was told where."""
    return any(i.ref == workload.ref and i.target == workload.target for i in observed.instances)


def _cluster(desired: Desired, node: str | None) -> str | None:
    """The cluster that a FleetNode is a pool of."""
    kind, _, name = desired.target(node).partition("/") if node else ("", "", "")
    return name if kind == "cluster" else None
