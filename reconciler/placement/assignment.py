"""Which service runs where, decided by the revision alone. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from reconciler.api.fleet import FleetSpec
from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.isolated import INTERNAL, Crash, isolated
from reconciler.api.meta import ObjectRef
from reconciler.api.problem import Finding
from reconciler.capacity.admission import Admission, Candidate, Facts, Others, admit, explain
from reconciler.capacity.earlier import Earlier
from reconciler.capacity.estimates import Estimates
from reconciler.fleet.fleet import Fleet
from reconciler.fleet.workload import Workload
from reconciler.placement.candidate import candidate as made_for
from reconciler.placement.candidate import model_ref, turn
from reconciler.placement.chat import without_template
from reconciler.placement.counting import nowhere, uncounted
from reconciler.placement.defaults import notes
from reconciler.placement.draining import Guest, take_in
from reconciler.placement.gpus import unstated_gpus
from reconciler.placement.images import unfitting_images
from reconciler.placement.load import unmeasured_load
from reconciler.placement.misfit import misfit, mistaken
from reconciler.placement.pods import name_conflicts, overfull

_SHOWN = 5  # models named in a note


@dataclass(frozen=True, slots=True)
class Hold:
    """A finding that keeps services running as they are; `services` are the ones it concerns.

    `nodes` are the ones that the services name; empty if they name none. `elsewhere`: does not
    matter here unless the service runs here. `port`: it is not held where it has that one.
    """

    finding: Finding
    services: tuple[ObjectRef, ...]
    nodes: frozenset[str] = frozenset()
    elsewhere: bool = False
    port: int | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """What runs where. `holds` is every blocked object with the services that stay as they are;
    `contested` are those of them that state one port: who has it goes on with it. `warnings` change
    nothing; `facts` are what was known of models, `policy` is the fleet's."""

    workloads: tuple[Workload, ...]
    contested: tuple[Workload, ...]
    holds: tuple[Hold, ...]
    warnings: tuple[Finding, ...]
    admissions: tuple[Admission, ...]
    facts: Facts
    policy: FleetSpec


@dataclass(slots=True)
class _Draft:
    holds: list[Hold] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)
    by_node: defaultdict[str, list[Candidate]] = field(default_factory=lambda: defaultdict(list))
    guests: list[Guest] = field(default_factory=list)
    contested: set[tuple[str, ObjectRef]] = field(default_factory=set)  # with their nodes

    def hold(self, service: InferenceService, rule: str, path: str, message: str) -> None:
        nodes = frozenset(service.spec.placement.nodes)
        self.holds.append(Hold(Finding(rule, service.ref, path, message), (service.ref,), nodes))

    def contest(self, candidate: Candidate, message: str) -> None:
        workload = candidate.workload
        finding = Finding("PortConflict", workload.ref, "spec.endpoint.port", message)
        nodes = frozenset({workload.node})
        self.holds.append(Hold(finding, (workload.ref,), nodes, port=workload.port))
        self.contested.add((workload.node, workload.ref))


def assign(fleet: Fleet, facts: Facts, before: Assignment | None = None) -> Assignment:
    """Give every service its nodes, its settings and its memory, or the reason why not.

    `facts` are the header facts of known models, by the Model's ref. A service that does not fit
    does not displace another: the more important go first, then by name. `before`, an earlier
    result for any revision, only saves time. A service with which this program fails is held.
    """
    refs = [service.ref for service in fleet.all(InferenceService)]
    outcome = isolated(refs, lambda some: _assign(_only(fleet, some), facts, before))
    if isinstance(outcome, Crash):
        failed = dict.fromkeys(refs, outcome.message)
        assigned = Assignment((), (), (), (), (), facts, fleet.policy)
    else:
        assigned, failed = outcome
    if not failed:
        return assigned
    holds = (Hold(Finding(INTERNAL, ref, "", why), (ref,)) for ref, why in failed.items())
    return replace(assigned, holds=(*assigned.holds, *holds))


def _only(fleet: Fleet, services: Sequence[ObjectRef]) -> Fleet:
    """Return the fleet with these of its services."""
    if len(services) == len(fleet.all(InferenceService)):
        return fleet
    kept = frozenset(services)
    objects = {
        ref: thing
        for ref, thing in fleet.objects.items()
        if ref in kept or type(thing) is not InferenceService
    }
    return replace(fleet, objects=MappingProxyType(objects))


def _assign(fleet: Fleet, facts: Facts, before: Assignment | None) -> Assignment:
    draft = _Draft()
    earlier = (
        Earlier(before.admissions, fleet, facts, before.facts, before.policy)
        if before
        else Earlier((), fleet, facts, {}, None)
    )
    unusable = _unusable(fleet, draft)
    nodes = {node.metadata.name: node for node in fleet.all(FleetNode)}
    for service in fleet.all(InferenceService):
        models = (model_ref(service, name) for name in service.needed_names)
        if not unusable or unusable.isdisjoint((service.ref, *models)):
            _place(service, fleet, nodes, facts, draft, earlier)
    admissions = _admit_all(nodes.values(), facts, draft, earlier)
    admitted = [sized.workload for admission in admissions for sized in admission.admitted]
    workloads = [w for w in admitted if (w.node, w.ref) not in draft.contested]
    draft.warnings += notes(fleet, workloads)
    draft.warnings += unfitting_images(workloads)
    draft.warnings += unmeasured_load(workloads)
    draft.warnings += without_template((c for a in admissions for c in a.asked), facts)
    return Assignment(
        tuple(sorted(workloads, key=lambda w: (w.node, w.ref))),
        tuple(w for w in admitted if (w.node, w.ref) in draft.contested),
        tuple(sorted(draft.holds, key=lambda h: (h.finding.ref, h.finding.rule))),
        tuple(sorted(draft.warnings, key=lambda f: (f.ref, f.rule))),
        tuple(admissions),
        facts,
        fleet.policy,
    )


def beside_others(assignment: Assignment, others: Others) -> tuple[Hold, ...]:
    """What is held; services that do not fit are explained with the memory that other processes
    use."""
    if not others or all(h.finding.rule != "MemoryFits" for h in assignment.holds):
        return assignment.holds
    findings = {(frozenset({n}), f.ref): f for n, f in explain(assignment.admissions, others)}
    return tuple(
        replace(hold, finding=findings.get((hold.nodes, hold.finding.ref), hold.finding))
        if hold.finding.rule == "MemoryFits"
        else hold
        for hold in assignment.holds
    )


def _admit_all(
    nodes: Iterable[FleetNode], facts: Facts, draft: _Draft, earlier: Earlier
) -> list[Admission]:
    """What each node and pool takes; the draft holds what does not fit, or needs a port that is
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
        candidates.sort(key=turn)
        if node.spec.agent is not None:  # every pod has its own address
            _contest_ports(candidates, draft)
            if draft.contested:
                candidates.sort(
                    key=lambda c: (node.metadata.name, c.service.ref) in draft.contested
                )
        known = earlier.admission(node, candidates)
        admissions.append(known or admit(node, candidates, facts, estimates))
    admissions, nowhere = take_in(draft.guests, admissions, facts, estimates)
    for guest in nowhere:
        draft.hold(guest.service, *guest.nowhere)
    for admission in admissions:
        draft.warnings += admission.warnings
    for node_name, finding in explain(admissions):
        draft.holds.append(Hold(finding, (finding.ref,), frozenset({node_name})))
    draft.warnings += [
        *_unknown_models(admissions),
        *overfull(admissions),
        *unstated_gpus(admissions),
    ]
    return admissions


def _unknown_models(admissions: Iterable[Admission]) -> Iterator[Finding]:
    """One note for the fleet about all models whose headers are not known here: their memory is
    checked where they are."""
    models = sorted({model for admission in admissions for model in admission.unknown})
    if models:
        named = ", ".join(model.label for model in models[:_SHOWN])
        named += f" and {len(models) - _SHOWN} more" if len(models) > _SHOWN else ""
        what = "a model" if len(models) == 1 else f"{len(models)} models"
        message = f"the memory of {what} is checked when the header is known: {named}"
        yield Finding("SizeUnknown", models[0], "spec.source", message)


def _unusable(fleet: Fleet, draft: _Draft) -> set[ObjectRef]:
    """Models that the source found blocked, with all their services, and blocked services."""
    dependants: defaultdict[ObjectRef, list[InferenceService]] = defaultdict(list)
    for service in fleet.all(InferenceService) if fleet.held else ():
        dependants[service.ref].append(service)
        for name in service.needed_names:
            dependants[model_ref(service, name)].append(service)
    for finding in fleet.held:
        services = dependants[finding.ref]
        nodes = frozenset(name for service in services for name in service.spec.placement.nodes)
        refs = tuple(service.ref for service in services)
        draft.holds.append(Hold(finding, refs, nodes, finding.ref in fleet.elsewhere))
    return {finding.ref for finding in fleet.held}


def _place(
    service: InferenceService,
    fleet: Fleet,
    nodes: Mapping[str, FleetNode],
    facts: Facts,
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
        message = (
            "a Kubernetes FleetNode cannot be combined with others: write"
            f" `placement: {{nodes: [{stated[0]}]}}`"
        )
        draft.hold(service, "PlacementNotStated", "spec.placement.nodes", message)
        return
    wanted = 1 if is_pool else max(service.spec.replicas, 1)  # on a pool the replicas are pods
    if wanted > len(homes):
        message = (
            f"{wanted} replicas need {wanted} nodes, and {len(homes)} are stated;"
            " name more in placement.nodes or lower replicas"
        )
        draft.hold(service, "PlacementNotStated", "spec.replicas", message)
        return
    for node in homes[:wanted]:
        if spare := _instead(node, service, homes[wanted:], fleet):
            options = tuple(
                earlier.candidate(service, n) or made_for(service, n, fleet, facts) for n in spare
            )
            draft.guests.append(Guest(service, node.metadata.name, options))
            continue
        known = earlier.candidate(service, node)
        if known is None and (
            why := misfit(service, node, fleet)
            or mistaken(service, node, fleet, facts)
            or nowhere(service, node)
            or uncounted(service, node, facts)
        ):
            draft.hold(service, *why)
            continue
        draft.by_node[node.metadata.name].append(known or made_for(service, node, fleet, facts))


def _instead(
    node: FleetNode, service: InferenceService, others: Iterable[FleetNode], fleet: Fleet
) -> list[FleetNode]:
    """Where a service of a drained machine may go: nodes that it names and does not use yet."""
    if not node.spec.drain or not misfit(service, node, fleet):
        return []
    return [n for n in others if not n.spec.unschedulable and not misfit(service, n, fleet)]


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
            "PlacementNotStated",
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
    if not fleet.all(FleetNode):
        reasons = "there is no FleetNode: add one, or name the cluster with --cluster"
    return "NodeCapability", "spec", f"no node can take it ({reasons or 'none is selected'})"


def _contest_ports(candidates: Iterable[Candidate], draft: _Draft) -> None:
    """Find ports that several services of one node state and that are not theirs by this revision.

    Of one namespace the most important one is to have it; a namespace takes nothing from another by
    its priority. By name a new service would take the port of a running one, so that of several
    alike none is to have it. Where one of them has the port already, it keeps it.
    """
    claims: defaultdict[int, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        if candidate.workload.port is not None and not candidate.workload.suspended:
            claims[candidate.workload.port].append(candidate)
    for port, claimants in claims.items():
        first = [c for c in claimants if turn(c)[0] == turn(claimants[0])[0]]
        is_decided = len(first) == 1 and len({c.service.ref.namespace for c in claimants}) == 1
        for candidate in claimants:
            before = first if is_decided else claimants
            rivals = [c for c in before if c is not candidate]
            if rivals:
                draft.contest(candidate, _contested(port, candidate, rivals))


def _contested(port: int, candidate: Candidate, rivals: Iterable[Candidate]) -> str:
    origins = ((c.workload.ref.label, c.workload.origin) for c in rivals)
    named = ", ".join(f"{label} ({origin.path}:{origin.line})" for label, origin in origins)
    return (
        f"port {port} on node {candidate.workload.node} is stated by {named} too;"
        " choose another, or leave it out to get one"
    )
