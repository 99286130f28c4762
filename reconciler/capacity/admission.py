"""Which of a node's services fit its memory, the more important first. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import ObjectRef
from reconciler.api.model import Model
from reconciler.api.problem import Finding
from reconciler.api.quantity import format_bytes, show_bytes
from reconciler.capacity.estimates import Estimates
from reconciler.capacity.experts import counted
from reconciler.capacity.ledger import Ledger
from reconciler.capacity.overriding import override_findings
from reconciler.capacity.parts import has_one_device, sharers, sliced
from reconciler.capacity.pools import MemoryPool, budgeted, needs_of_stated, pools, settled
from reconciler.capacity.remedies import Occupancy, refusal, shortfall
from reconciler.capacity.smaller import Asked, ModelRequest, useful_context
from reconciler.fleet.model_file import ModelFile, with_companions
from reconciler.fleet.workload import PoolNeed, Workload
from reconciler.memory import MemoryEstimate, ModelFacts
from reconciler.runtimes.runtime import Runtime

Facts = Mapping[ObjectRef, ModelFacts]
Others = Mapping[str, Mapping[str, int]]
"""Memory used by other processes, as measured: node -> pool -> bytes. A missing node is unknown."""
NOBODY: Others = MappingProxyType({})
# searching for a remedy takes milliseconds: the rest gets one once these are fixed
MAX_REMEDIES = 50


@dataclass(frozen=True, slots=True)
class Candidate:
    """A service on its node, before its memory is checked.

    `models` are the declared Models by name.
    """

    service: InferenceService
    workload: Workload
    runtime: Runtime
    models: Mapping[str, Model]


@dataclass(frozen=True, slots=True)
class Sized:
    """A candidate with its memory. `asked` is None while that is not known; `beside` is the number
    of services admitted to the node before it."""

    candidate: Candidate
    workload: Workload
    asked: Asked | None
    pools: tuple[MemoryPool, ...]  # with the budgets that apply to this service
    beside: int

    @property
    def pods(self) -> int:
        """The largest number of its pods at a time."""
        spec = self.candidate.service.spec
        return spec.autoscaling.max_replicas if spec.autoscaling else spec.replicas


@dataclass(slots=True)
class Admission:
    """What one node takes of the services it was `asked` about. Those in `refused` do not fit;
    `explain` returns the reasons once all nodes are known."""

    node: FleetNode
    asked: tuple[Candidate, ...] = ()
    admitted: list[Sized] = field(default_factory=list)
    refused: list[Sized] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)
    unknown: set[ObjectRef] = field(default_factory=set)  # Models whose facts are not known here

    @property
    def is_pool(self) -> bool:
        """Whether it represents many nodes, among which Kubernetes chooses: each pod is checked
        alone, but on the one device that all share."""
        return self.node.spec.kubernetes is not None

    def room(self, others: Others = NOBODY) -> Occupancy:
        """The node with all admitted services; a pool is empty, but for a device that all share."""
        taken = Ledger(self.tenants(self.admitted), self._used(others))
        return Occupancy(self.node.metadata.name, pools(self.node), taken)

    def refusals(self, others: Others = NOBODY) -> Iterator[tuple[Sized, Occupancy]]:
        """The services that do not fit, with the node as it was then. A room is valid until the
        next one: they share a ledger."""
        taken, admitted = Ledger((), self._used(others)), 0
        for sized in self.refused:
            for tenant in self.tenants(self.admitted[admitted : sized.beside]):
                taken.replace(tenant.ref, tenant.needs)
            admitted = sized.beside
            yield sized, Occupancy(self.node.metadata.name, sized.pools, taken)

    def tenants(self, admitted: Iterable[Sized]) -> Iterator[Workload]:
        """What takes memory that one more would need: of the pods of a pool what they take of the
        one device that all share."""
        if not self.is_pool:
            yield from _running(admitted)
        elif has_one_device(self.node):
            for sized in admitted:
                if not sized.workload.suspended and self.shares(sized.candidate):
                    on_device = (n for n in sized.workload.needs if n.pool.startswith("device"))
                    all_pods = (n._replace(bytes=n.bytes * sized.pods) for n in on_device)
                    yield replace(sized.workload, needs=tuple(all_pods))

    def shares(self, candidate: Candidate) -> bool:
        """Whether its pods may be on a device with others."""
        return sharers(self.node, candidate.service) != 1

    def _used(self, others: Others) -> Mapping[str, int]:
        return others.get(self.node.metadata.name, {})


def admit(
    node: FleetNode, candidates: Iterable[Candidate], facts: Facts, estimates: Estimates
) -> Admission:
    """Take candidates in their order as long as they fit."""
    result = Admission(node, tuple(candidates))
    stated = pools(node)
    ledger = Ledger(())
    for candidate in result.asked:
        sized = _size(candidate, stated, facts, estimates, result)
        if result.is_pool:
            ledger = Ledger(result.tenants(result.admitted) if result.shares(candidate) else ())
        ref = sized.workload.ref
        if sized.workload.suspended:
            result.admitted.append(sized)
            continue
        ledger.replace(ref, sized.workload.needs)
        fits, allowed = ledger.fits(ref), let_through(sized.workload)
        if not fits and not allowed:
            ledger.undo()
            result.refused.append(sized)
            continue
        if not fits:
            message = f"{ledger.over_budget(ref)}; {allowed}"
            result.warnings.append(Finding("MemoryOverridden", ref, "spec.memory.mode", message))
        result.admitted.append(sized)
    result.warnings += _unstated(result)
    return result


def let_through(workload: Workload) -> str:
    """Why a service is started although it does not fit; empty if it is not."""
    if workload.lifecycle.get("memory.mode") == "warn":
        return "started all the same, by memory.mode: warn"
    return ""


def reason(sized: Sized, admission: Admission, others: Others = NOBODY) -> str | None:
    """Why it does not fit the node, and what would; None if it fits.

    A refused service is judged by the node as it was then, any other with all admitted services.
    """
    ref = sized.workload.ref
    for refused, room in admission.refusals(others):
        if refused.workload.ref == ref:
            return why_not(sized, room)
    return why_not(sized, replace(admission.room(others), pools=sized.pools))


def explain(
    admissions: Sequence[Admission], others: Others = NOBODY
) -> Iterator[tuple[str, Finding]]:
    """Every refusal as (node, finding), at the setting that most likely has to change."""
    rooms: list[Occupancy] | None = None
    helped = 0
    for admission in admissions:
        name = admission.node.metadata.name
        for sized, room in admission.refusals(others):
            if rooms is None:
                rooms = [other.room(others) for other in admissions if _takes_new(other.node)]
            helped += 1
            if helped <= MAX_REMEDIES:
                message = why_not(sized, room, [other for other in rooms if other.node != name])
            else:
                message = shortfall(sized.workload.needs, room)
            assert message is not None, "a refused service does not fit"
            if helped > MAX_REMEDIES:
                message += f"; what would fit is said for {MAX_REMEDIES} others, fix those first"
            at = _to_change(sized.candidate)
            yield name, Finding("MemoryFits", sized.workload.ref, at, message)


def _to_change(candidate: Candidate) -> str:
    """The setting that most likely has to change."""
    stated = "context_size" in candidate.service.spec.model_fields_set
    return "spec.contextSize" if stated else "spec"


def _takes_new(node: FleetNode) -> bool:
    return not (node.spec.drain or node.spec.unschedulable)


def why_not(sized: Sized, room: Occupancy, elsewhere: Sequence[Occupancy] = ()) -> str | None:
    """The arithmetic of a service that does not fit, and what would; None if it fits."""
    if sized.asked is None:
        return shortfall(sized.workload.needs, room)
    return refusal(sized.asked, room, elsewhere)


def _running(admitted: Iterable[Sized]) -> Iterator[Workload]:
    """Workloads that use memory."""
    return (s.workload for s in admitted if not s.workload.suspended)


def _unstated(result: Admission) -> Iterator[Finding]:
    """A warning for a node whose memory the fleet does not state: without its agent nothing can be
    refused there."""
    node, hardware = result.node, result.node.spec.hardware
    if "memory" in hardware.model_fields_set or node.spec.memory.budget is not None:
        return
    if not result.asked:
        return
    line = "`fleet-agent probe` there prints the line to add"
    if result.is_pool:
        line = "add `hardware.memory`, of one of its nodes"
    if hardware.memory is not None:  # from its agent
        bound = f"is held to the {show_bytes(hardware.memory)} that the machine has"
        line = f"for plans without its agent add `memory: {format_bytes(hardware.memory)}`"
    elif pools(node):
        bound = "is checked against the memory of its devices only"
    elif result.is_pool:
        bound = "is not checked for memory"
    else:
        bound = "is held to what the machine has by its agent, and not checked here"
    message = f"the fleet does not state its memory: what runs there {bound}; {line}"
    yield Finding("MemoryUnknown", node.ref, "spec.hardware", message)


def _size(
    candidate: Candidate,
    stated: tuple[MemoryPool, ...],
    facts: Facts,
    estimates: Estimates,
    result: Admission,
) -> Sized:
    workload, runtime, node = candidate.workload, candidate.runtime, result.node
    of_pods = sliced(stated, node, candidate.service)
    known = budgeted(of_pods, candidate.service, tuple(candidate.models.values()))
    # Of a slice nobody else has anything: it is judged as if it were the first.
    admitted = len(result.admitted) if not result.is_pool or result.shares(candidate) else 0
    if runtime.stated_memory is not None:
        made, needs = _as_stated(workload, runtime.stated_memory(workload.settings), known, result)
        return Sized(candidate, replace(workload, memory=made, needs=needs), None, known, admitted)
    unknown = [m for m in workload.models if _lacks_facts(m, candidate, facts)]
    result.unknown |= {candidate.models[model.name].ref for model in unknown}
    if unknown:
        return Sized(candidate, workload, None, known, admitted)
    requests: list[ModelRequest] = []
    for model in workload.models:
        its = facts[candidate.models[model.name].ref]
        settings = settled(runtime.memory_settings(workload, model), node, its.block_count)
        beside = model.projector
        projector = facts[beside.ref(workload.ref.namespace)] if beside else None
        request = ModelRequest(its, settings, model.identities[0], estimates, projector)
        if model.draft is not None:
            draft = facts[model.draft.ref(workload.ref.namespace)]
            request = replace(request, draft=draft, draft_file=model.draft.identities[0])
        requests.append(request)
    result.warnings += _too_long(candidate, requests)
    counts = counted(candidate.service, workload, requests, known, node)
    result.warnings += counts.findings
    result.warnings += override_findings(candidate.service, workload, requests)
    requests = list(counts.requests)
    places = candidate.service.spec.router.resident if runtime.serves_many else None
    asked = Asked(tuple(requests), places)
    sizes = [request.estimate for request in requests]
    largest = max(range(len(sizes)), key=lambda i: sizes[i].total_bytes)
    memory = sizes[largest]
    if why := counts.lines.get(largest):
        memory = replace(memory, arithmetic=(*memory.arithmetic, why))
    for what in memory.unknown:
        message = f"not in the checked memory: {what}"
        result.warnings.append(Finding("MemoryUnknown", workload.ref, "spec", message))
    needs = asked.needs_in(known)
    sized = replace(workload, memory=memory, needs=needs, counted=counts.numbers)
    return Sized(candidate, sized, asked, known, admitted)


def _as_stated(
    workload: Workload, size: int | None, known: Sequence[MemoryPool], result: Admission
) -> tuple[MemoryEstimate | None, tuple[PoolNeed, ...]]:
    """The memory of a program of which nothing but its author's word is known."""
    if size is None:
        message = "what it takes is not known, and not checked: state runtimeOptions.memory"
        result.warnings.append(Finding("MemoryUnknown", workload.ref, "spec", message))
        return None, ()
    return MemoryEstimate.stated(size), needs_of_stated(size, workload.devices, known)


def _lacks_facts(model: ModelFile, candidate: Candidate, facts: Facts) -> bool:
    namespace = candidate.workload.ref.namespace
    return any(file.ref(namespace) not in facts for file in with_companions([model]))


def _too_long(candidate: Candidate, requests: Iterable[ModelRequest]) -> Iterator[Finding]:
    """A context that no request can use, and that takes memory."""
    spec = candidate.service.spec
    for index, (model, request) in enumerate(zip(candidate.workload.models, requests, strict=True)):
        useful, asked = useful_context(request), request.settings.context
        if useful is None or asked <= useful:
            continue
        slots = request.settings.slots
        message = (
            f"{asked} tokens, and {model.name} was trained with {request.facts.trained_context}:"
            + (f" with {slots} slots" if slots > 1 else "")
            + f" no more than {useful} are of use"
        )
        own = spec.models[index].context_size if spec.models else None
        at = f"spec.models[{index}].contextSize" if own is not None else "spec.contextSize"
        stated = own is not None or "context_size" in spec.model_fields_set
        yield Finding("ContextTooLong", candidate.workload.ref, at if stated else "spec", message)
