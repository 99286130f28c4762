"""Which of a node's services fit its memory, the more important first. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import ObjectRef
from reconciler.api.model import Model
from reconciler.capacity.estimates import Estimates
from reconciler.capacity.ledger import Ledger
from reconciler.capacity.pools import Pool, budgeted, needs, pools, resident, settled
from reconciler.capacity.remedies import Request, Room, refusal, shortfall
from reconciler.memory import MemoryEstimate, ModelFacts
from reconciler.problem import Finding
from reconciler.runtime import Runtime
from reconciler.workload import ModelFile, PoolNeed, Workload

Facts = Mapping[ObjectRef, ModelFacts]
MAX_REMEDIES = 50  # looking for what fits takes milliseconds: whoever follows these sees the rest


@dataclass(frozen=True, slots=True)
class Candidate:
    """A service on the node that it is placed on, before anybody looked at memory.

    `models` are the declared Models by name.
    """

    service: InferenceService
    workload: Workload
    runtime: Runtime
    models: Mapping[str, Model]


@dataclass(frozen=True, slots=True)
class Sized:
    """A candidate with what it would take; `requests` has one estimate's question a model, `beside`
    says how many the node had admitted when this one was asked about."""

    candidate: Candidate
    workload: Workload
    requests: tuple[Request, ...]
    pools: tuple[Pool, ...]  # with the budgets that count for this service
    beside: int = 0


@dataclass(slots=True)
class Admission:
    """What one node takes of whom it was `asked` about. `refused` do not fit; why, `explain` says
    when all nodes are known."""

    node: FleetNode
    asked: tuple[Candidate, ...] = ()
    admitted: list[Sized] = field(default_factory=list)
    refused: list[Sized] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)
    unknown: dict[ObjectRef, list[ObjectRef]] = field(default_factory=dict)  # Model -> services

    @property
    def is_pool(self) -> bool:
        """Many nodes, among which Kubernetes chooses: each pod is weighed alone."""
        return self.node.spec.kubernetes is not None

    def room(self) -> Room:
        """The node with everyone who is admitted; of a pool, one that is empty."""
        taken = Ledger(() if self.is_pool else _running(self.admitted))
        return Room(self.node.metadata.name, pools(self.node), taken)

    def refusals(self) -> Iterator[tuple[Sized, Room]]:
        """Who does not fit, with the node as it was then. A room lasts until the next is asked for:
        the ledger in it goes on."""
        taken, admitted = Ledger(()), 0
        for sized in self.refused:
            for tenant in _running(self.admitted[admitted : sized.beside]):
                taken.replace(tenant.ref, tenant.needs)
            admitted = sized.beside
            yield sized, Room(self.node.metadata.name, sized.pools, taken)


def admit(
    node: FleetNode, candidates: Iterable[Candidate], facts: Facts, estimates: Estimates
) -> Admission:
    """Take candidates in their order as long as the pools last."""
    result = Admission(node, tuple(candidates))
    stated = pools(node)
    ledger = Ledger(())
    for candidate in result.asked:
        sized = _size(candidate, stated, facts, estimates, result)
        ledger = Ledger(()) if result.is_pool else ledger
        ref = sized.workload.ref
        if sized.workload.suspended:
            result.admitted.append(sized)
            continue
        ledger.replace(ref, sized.workload.needs)
        fits = ledger.fits(ref)
        if not fits and candidate.service.spec.memory.mode == "enforce":
            ledger.undo()
            beside = 0 if result.is_pool else len(result.admitted)
            result.refused.append(replace(sized, beside=beside))
            continue
        if not fits:
            message = f"{ledger.over_budget(ref)}; started all the same, by memory.mode: warn"
            result.warnings.append(Finding("MemoryOverridden", ref, "spec.memory.mode", message))
        result.admitted.append(sized)
    result.warnings += _unstated(result)
    return result


def reason(sized: Sized, admission: Admission) -> str | None:
    """Why it does not fit the node, and what would; None when it fits.

    One that the node has refused finds it as it was then, any other finds everyone there.
    """
    ref = sized.workload.ref
    for refused, room in admission.refusals():
        if refused.workload.ref == ref:
            return why_not(sized, room)
    return why_not(sized, replace(admission.room(), pools=sized.pools))


def explain(admissions: Sequence[Admission]) -> Iterator[tuple[str, Finding]]:
    """Every refusal as (node, finding), at the setting that most likely has to change."""
    rooms: list[Room] | None = None
    helped = 0
    for admission in admissions:
        name = admission.node.metadata.name
        for sized, room in admission.refusals():
            if rooms is None:
                rooms = [other.room() for other in admissions]
            helped += 1
            if helped <= MAX_REMEDIES:
                message = why_not(sized, room, [other for other in rooms if other.node != name])
            else:
                message = shortfall(sized.workload.needs, room)
            assert message is not None, "a refused service does not fit"
            if helped > MAX_REMEDIES:
                message += f"; what would fit is said for {MAX_REMEDIES} others, fix those first"
            stated = "context_size" in sized.candidate.service.spec.model_fields_set
            at = "spec.contextSize" if stated else "spec"
            yield name, Finding("MemoryFits", sized.workload.ref, at, message)


def why_not(sized: Sized, room: Room, elsewhere: Sequence[Room] = ()) -> str | None:
    """The arithmetic of a service that does not fit a room, and what would; None when it fits."""
    if len(sized.requests) != 1:
        return shortfall(sized.workload.needs, room)
    return refusal(sized.requests[0], room, elsewhere)


def _running(admitted: Iterable[Sized]) -> Iterator[Workload]:
    """The ones that take memory."""
    return (s.workload for s in admitted if not s.workload.suspended)


def _unstated(result: Admission) -> Iterator[Finding]:
    """A node that does not say how much memory it has: nothing there can be refused."""
    node = result.node
    if node.spec.hardware.memory is not None or node.spec.memory.budget is not None:
        return
    if any(candidate.runtime.memory_settings is not None for candidate in result.asked):
        what = "only its devices are weighed" if pools(node) else "nothing is weighed"
        message = f"no hardware.memory is stated, so {what}; fleet-agent probe prints it"
        yield Finding("MemoryUnknown", node.ref, "spec.hardware", message)


def _size(
    candidate: Candidate,
    stated: tuple[Pool, ...],
    facts: Facts,
    estimates: Estimates,
    result: Admission,
) -> Sized:
    workload, runtime, node = candidate.workload, candidate.runtime, result.node
    if runtime.memory_settings is None:
        message = f"the memory of {runtime.name} is not estimated; nothing is checked"
        result.warnings.append(Finding("MemoryUnknown", workload.ref, "spec", message))
        return Sized(candidate, workload, (), ())
    known = budgeted(stated, candidate.service, tuple(candidate.models.values()))
    requests: list[Request] = []
    made: list[MemoryEstimate] = []
    each: list[tuple[PoolNeed, ...]] = []
    unknown = [m for m in workload.models if candidate.models[m.name].ref not in facts]
    for model in unknown:
        result.unknown.setdefault(candidate.models[model.name].ref, []).append(workload.ref)
    if unknown:
        return Sized(candidate, workload, (), known)
    for model in workload.models:
        ref = candidate.models[model.name].ref
        known_facts = facts[ref]
        layers = known_facts.block_count
        asked = settled(runtime.memory_settings(workload, model), node, layers)
        answer = estimates.of(known_facts, asked)
        made.append(answer)
        each.append(needs(answer, asked, known, layers, _identity(model)))
        requests.append(Request(known_facts, asked, _identity(model), estimates))
    total = each[0] if not runtime.serves_many else resident(each, _places(candidate))
    sized = replace(workload, memory=max(made, key=lambda m: m.total_bytes), needs=total)
    return Sized(candidate, sized, tuple(requests), known)


def _identity(model: ModelFile) -> str:
    return model.sha256 or model.source


def _places(candidate: Candidate) -> int:
    return candidate.service.spec.router.resident
