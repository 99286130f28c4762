"""What runs now, beside what should run: what a pass finds, as a status."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from reconciler.agents.arrival import Verdicts
from reconciler.agents.left import beside
from reconciler.agents.verdicts import verdicts_of
from reconciler.api.meta import ObjectRef
from reconciler.api.nodestate import NodeState
from reconciler.cli.clusters import planned_clusters
from reconciler.cli.inspection import Inspection
from reconciler.cli.measuring import measured_in, speeds_in
from reconciler.core.observation import Observation, starts_again
from reconciler.core.plan import Blocked, Plan
from reconciler.fleet.workload import Workload
from reconciler.loop import Pass
from reconciler.loop.desired import Desired
from reconciler.placement.assignment import Hold
from reconciler.report.status import DeclaredService, Status


def observe_status(at: Inspection) -> Status:
    """What runs now, beside what the revision that was fetched wants, and why it is not so."""
    return status_of(at, at.compare())


def status_of(at: Inspection, compared: Pass) -> Status:
    """The status that a comparison showed."""
    verdicts = _verdicts(compared.plan, at.states)
    refusals = {ref: b for b in compared.plan.blocked for ref in (*b.holds, b.ref) if not b.target}
    declared = _declared(compared.desired, at.node, compared.observed, verdicts, refusals)
    answers = {node.target: node.state for node in at.left if node.state}
    return Status(
        beside(_not_whole(compared.observed, _failures(compared.plan)), at.left),
        declared,
        {**at.states, **answers},
        compared.desired.fleet.revision,
        measured={name: each.observed.results for name, each in measured_in(compared.plan).items()},
        speeds=speeds_in(compared.plan),
        left=frozenset(node.target for node in at.left),
    )


def _verdicts(plan: Plan, states: Mapping[str, NodeState]) -> Mapping[str, Verdicts]:
    """What a cluster refused, what this plan holds, and what each agent says that it does not run:
    the agent knows more."""
    verdicts: defaultdict[str, dict[ObjectRef, tuple[str, str]]] = defaultdict(dict)
    for target, failures in _failures(plan).items():
        verdicts[target] |= failures
    for item in plan.blocked:
        if item.target is not None:
            why = (item.reason, item.message)
            verdicts[item.target] |= dict.fromkeys((*item.holds, item.ref), why)
    for target, state in states.items():
        verdicts[target] |= verdicts_of(state)
    return verdicts


def _failures(plan: Plan) -> Mapping[str, Verdicts]:
    """What the API server of each cluster refused when it was applied last, by target."""
    if not (clusters := planned_clusters(plan)):
        return {}
    from reconciler.kube.status.failures import reported_failures

    return {name: reported_failures(each.observed.documents) for name, each in clusters.items()}


def _not_whole(observed: Observation, verdicts: Mapping[str, Verdicts]) -> Observation:
    """Add what each cluster's Fleet says was refused: also what has no document to say it."""
    targets = dict(observed.targets)
    for target, refused in verdicts.items():
        why = [message for ref, (_, message) in refused.items() if ref.kind == "Fleet"]
        if why and target in targets and not targets[target].message:
            targets[target] = replace(targets[target], message=why[0])
    return replace(observed, targets=targets)


def _declared(
    desired: Desired,
    node: str | None,
    observed: Observation,
    verdicts: Mapping[str, Verdicts],
    refusals: Mapping[ObjectRef, Blocked],
) -> tuple[DeclaredService, ...]:
    """What should run, there or anywhere; what cannot, with the reason: the plan's, which knows
    what else uses the memory."""
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
    state = observed.targets.get(target)
    verdict = verdicts.get(target, {}).get(workload.ref)
    reason, message, since = "NotRunning", "", None
    if state is not None and not state.reachable:
        reason = "Unknown"
    elif workload.suspended:
        reason, message = "Suspended", ""
    elif verdict is not None:
        reason, message = verdict
    elif state is not None and state.keeps_stopped(workload):
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
