"""Which service runs where: the revision decides, and nothing else. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import ObjectRef
from reconciler.capacity.admission import Admission, Candidate, Facts, admit, explain
from reconciler.capacity.earlier import Earlier
from reconciler.capacity.estimates import Estimates
from reconciler.fleet import Fleet
from reconciler.placement.candidate import candidate as made_for
from reconciler.placement.candidate import model_ref
from reconciler.placement.misfit import misfit
from reconciler.placement.pods import name_conflicts, overfull
from reconciler.problem import Finding
from reconciler.workload import Workload

_PRIORITY = {"critical": 0, "high": 1, "normal": 2, "low": 3, "batch": 4}


@dataclass(frozen=True, slots=True)
class Held:
    """A finding that holds services as they run now; `services` are the ones it concerns.

    `nodes` are the ones that the services name; empty where no node is stated. `elsewhere`: of no
    interest here, as long as nothing of it runs here.
    """

    finding: Finding
    services: tuple[ObjectRef, ...]
    nodes: frozenset[str] = frozenset()
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Assignment:
    """What runs where. `held` is every blocked object with the services that stay as they are;
    `warnings` change nothing; `facts` are what was known of models."""

    workloads: tuple[Workload, ...]
    held: tuple[Held, ...]
    warnings: tuple[Finding, ...]
    admissions: tuple[Admission, ...]
    facts: Facts


@dataclass(slots=True)
class _Draft:
    held: list[Held] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)
    by_node: defaultdict[str, list[Candidate]] = field(default_factory=lambda: defaultdict(list))

    def hold(self, service: InferenceService, rule: str, path: str, message: str) -> None:
        nodes = frozenset(service.spec.placement.nodes)
        self.held.append(Held(Finding(rule, service.ref, path, message), (service.ref,), nodes))


def assign(fleet: Fleet, facts: Facts, before: Assignment | None = None) -> Assignment:
    """Give every service its nodes, its settings and its memory, or the reason why not.

    `facts` are the header facts of the models that are known, by the Model's ref. A service that
    does not fit does not take another's place: the more important go first, then by name.
    `before`, an earlier answer for any revision, changes how long this takes and nothing else.
    """
    draft = _Draft()
    earlier = Earlier(
        before.admissions if before else (), fleet, facts, before.facts if before else {}
    )
    unusable = _unusable(fleet, draft)
    nodes = {node.metadata.name: node for node in fleet.all(FleetNode)}
    for service in fleet.all(InferenceService):
        models = (model_ref(service, name) for name in service.model_names)
        if not unusable or unusable.isdisjoint((service.ref, *models)):
            _place(service, fleet, nodes, draft, earlier)
    admissions = _admit_all(nodes.values(), facts, draft, earlier)
    workloads = [sized.workload for admission in admissions for sized in admission.admitted]
    return Assignment(
        tuple(sorted(workloads, key=lambda w: (w.node, w.ref))),
        tuple(sorted(draft.held, key=lambda h: (h.finding.ref, h.finding.rule))),
        tuple(sorted(draft.warnings, key=lambda f: (f.ref, f.rule))),
        tuple(admissions),
        facts,
    )


def _admit_all(
    nodes: Iterable[FleetNode], facts: Facts, draft: _Draft, earlier: Earlier
) -> list[Admission]:
    """What each node and pool takes; holds in the draft what does not fit, or wants a port that is
    taken."""
    estimates = Estimates()
    admissions = []
    nodes = tuple(nodes)
    conflicts = name_conflicts((n, c) for n in nodes for c in draft.by_node[n.metadata.name])
    for service in {c.service.ref: c.service for cs in draft.by_node.values() for c in cs}.values():
        if why := conflicts.get(service.ref):
            draft.hold(service, "ObjectName", "metadata.name", why)
    for node in nodes:
        asked = draft.by_node[node.metadata.name]
        candidates = [c for c in asked if c.service.ref not in conflicts]
        candidates.sort(key=lambda c: (_PRIORITY[c.service.spec.priority], c.service.ref))
        if node.spec.agent is not None:  # every pod has an address of its own
            candidates = _without_port_conflicts(candidates, draft)
        known = earlier.admission(node, candidates)
        admissions.append(known or admit(node, candidates, facts, estimates))
    for admission in admissions:
        draft.warnings += admission.warnings
    for node_name, finding in explain(admissions):
        draft.held.append(Held(finding, (finding.ref,), frozenset({node_name})))
    draft.warnings += [*_unknown_models(admissions), *overfull(admissions)]
    return admissions


def _unknown_models(admissions: Iterable[Admission]) -> Iterator[Finding]:
    """One warning a model whose header nobody here has: its services are not weighed."""
    services: defaultdict[ObjectRef, set[str]] = defaultdict(set)
    for admission in admissions:
        for model, refs in admission.unknown.items():
            services[model] |= {ref.label for ref in refs}
    for model, labels in services.items():
        shown = ", ".join(sorted(labels)[:3]) + (", ..." if len(labels) > 3 else "")
        message = f"its size is known once it is downloaded; not weighed yet: {shown}"
        yield Finding("MemoryUnknown", model, "spec.source", message)


def _unusable(fleet: Fleet, draft: _Draft) -> set[ObjectRef]:
    """What the source itself found blocked: models, with every service of theirs; services."""
    dependants: defaultdict[ObjectRef, list[InferenceService]] = defaultdict(list)
    for service in fleet.all(InferenceService) if fleet.held else ():
        dependants[service.ref].append(service)
        for name in service.model_names:
            dependants[model_ref(service, name)].append(service)
    for finding in fleet.held:
        services = dependants[finding.ref]
        nodes = frozenset(name for service in services for name in service.spec.placement.nodes)
        refs = tuple(service.ref for service in services)
        draft.held.append(Held(finding, refs, nodes, finding.ref in fleet.elsewhere))
    return {finding.ref for finding in fleet.held}


def _place(
    service: InferenceService,
    fleet: Fleet,
    nodes: Mapping[str, FleetNode],
    draft: _Draft,
    earlier: Earlier,
) -> None:
    stated = service.spec.placement.nodes
    if stated:
        homes = [nodes[name] for name in stated if name in nodes]
    else:
        selector = service.spec.placement.node_selector
        homes = [
            n for n in nodes.values() if _selected(n, selector) and not misfit(service, n, fleet)
        ]
        if len(homes) != 1:
            draft.hold(service, *_not_stated(service, homes, nodes.values(), fleet))
            return
    is_pool = any(node.spec.kubernetes is not None for node in homes)
    if is_pool and len(homes) > 1:
        message = f"a Kubernetes FleetNode stands alone: `placement: {{nodes: [{stated[0]}]}}`"
        draft.hold(service, "PlacementNotLocked", "spec.placement.nodes", message)
        return
    wanted = 1 if is_pool else max(service.spec.replicas, 1)  # there the replicas are pods
    if wanted > len(homes):
        message = (
            f"{wanted} replicas need {wanted} nodes, and {len(homes)} are stated;"
            " name more in placement.nodes or lower replicas"
        )
        draft.hold(service, "PlacementNotLocked", "spec.replicas", message)
        return
    for node in homes[:wanted]:
        known = earlier.candidate(service, node)
        if known is None and (why := misfit(service, node, fleet)):
            draft.hold(service, *why)
            continue
        draft.by_node[node.metadata.name].append(known or made_for(service, node, fleet))


def _selected(node: FleetNode, selector: Mapping[str, str]) -> bool:
    return all(node.metadata.labels.get(key) == value for key, value in selector.items())


def _not_stated(
    service: InferenceService, homes: list[FleetNode], nodes: Iterable[FleetNode], fleet: Fleet
) -> tuple[str, str, str]:
    """(rule, field, message): no node, or more than one, could take it."""
    if homes:
        names = ", ".join(node.metadata.name for node in homes)
        line = f"placement: {{nodes: [{homes[0].metadata.name}]}}"
        return (
            "PlacementNotLocked",
            "spec.placement" if service.spec.placement.node_selector else "spec",
            f"{len(homes)} nodes could take it ({names}); say which: `{line}`",
        )
    misfits = [
        (node.metadata.name, why)
        for node in nodes
        if _selected(node, service.spec.placement.node_selector)
        and (why := misfit(service, node, fleet))
    ]
    if len(misfits) == 1:
        return misfits[0][1]
    reasons = "; ".join(f"{name}: {message}" for name, (_, _, message) in misfits)
    return "NodeCapability", "spec", f"no node can take it ({reasons or 'none is selected'})"


def _without_port_conflicts(candidates: list[Candidate], draft: _Draft) -> list[Candidate]:
    """A port that two services of one node state goes to the first; the other is held."""
    owners: dict[int, Candidate] = {}
    kept = []
    for candidate in candidates:
        port = candidate.workload.port
        owner = owners.setdefault(port, candidate) if port is not None else candidate
        if owner is candidate:
            kept.append(candidate)
            continue
        message = (
            f"port {port} on node {candidate.workload.node} is taken by"
            f" {owner.workload.ref.label}; choose another, or leave it out to get one"
        )
        draft.hold(candidate.service, "PortConflict", "spec.endpoint.port", message)
    return kept
