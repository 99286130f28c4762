"""What runs now, beside what should run: what a pass finds, as a status."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from reconciler.agents.arrival import Verdicts
from reconciler.agents.left import LeftNode, beside
from reconciler.api.meta import ObjectRef
from reconciler.api.nodestate import NodeState
from reconciler.cli.clusters import planned_clusters
from reconciler.cli.inspection import Inspection
from reconciler.cli.measuring import measured_in, speeds_in
from reconciler.core.observation import Observation
from reconciler.core.plan import Plan
from reconciler.loop import Pass
from reconciler.loop.declared_services import declared_services
from reconciler.report.nodestate import verdicts_of
from reconciler.report.status import Status


def observe_status(at: Inspection) -> Status:
    """What runs now, beside what the revision that was fetched wants, and why it is not so."""
    return status_of(at, at.compare())


def status_of(at: Inspection, compared: Pass) -> Status:
    """The status that a comparison showed."""
    return status_as_seen(compared, at.states, at.left, at.node)


def status_as_seen(
    compared: Pass,
    states: Mapping[str, NodeState],
    left: tuple[LeftNode, ...],
    node: str | None = None,
) -> Status:
    """The status of a pass: `states` are what the agents answered, `left` the machines that left
    the fleet; `node` is this machine's, where that is all."""
    verdicts = _verdicts(compared.plan, states)
    declared = declared_services(compared.desired, compared.plan, compared.observed, verdicts, node)
    answers = {node.target: node.state for node in left if node.state}
    return Status(
        beside(_not_whole(compared.observed, _failures(compared.plan)), left),
        declared,
        {**states, **answers},
        compared.desired.fleet.revision,
        measured={name: each.observed.results for name, each in measured_in(compared.plan).items()},
        speeds=speeds_in(compared.plan),
        left=frozenset(node.target for node in left),
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
