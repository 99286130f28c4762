"""Which of a node's services fit its memory, the more important first. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import ObjectRef
from reconciler.api.model import Model
from reconciler.capacity.ledger import Ledger
from reconciler.capacity.pools import Pool, budgeted, needs, pools, resident, settled
from reconciler.capacity.remedies import Neighbour, Request, Room, refusal, shortfall
from reconciler.memory import MemoryEstimate, MemorySettings, ModelFacts, estimate
from reconciler.problem import Finding
from reconciler.runtime import Runtime
from reconciler.workload import ModelFile, PoolNeed, Workload

Facts = Mapping[ObjectRef, ModelFacts]


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
    """A candidate with what it would take; `requests` has one estimate's question a model."""

    candidate: Candidate
    workload: Workload
    requests: tuple[Request, ...]
    pools: tuple[Pool, ...]  # with the budgets that count for this service


@dataclass(slots=True)
class Estimates:
    """Estimates of one pass, each made once: many services share a model and its settings."""

    _made: dict[tuple[ObjectRef, MemorySettings], MemoryEstimate] = field(default_factory=dict)

    def of(self, model: ObjectRef, facts: ModelFacts, settings: MemorySettings) -> MemoryEstimate:
        key = (model, settings)
        if key not in self._made:
            self._made[key] = estimate(facts, settings)
        return self._made[key]


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

    def room(self, of: Sized | None = None) -> Room:
        """The node with who is admitted, as `of` finds it."""
        known = of.pools if of else pools(self.node)
        neighbours = tuple(
            Neighbour(s.workload.ref.label, s.workload.needs) for s in self.admitted if s is not of
        )
        return Room(self.node.metadata.name, known, neighbours)


def admit(
    node: FleetNode, candidates: Iterable[Candidate], facts: Facts, estimates: Estimates
) -> Admission:
    """Take candidates in their order as long as the pools last."""
    result = Admission(node, tuple(candidates))
    stated = pools(node)
    ledger = Ledger(())
    for candidate in result.asked:
        sized = _size(candidate, stated, facts, estimates, result)
        ref = sized.workload.ref
        if sized.workload.suspended:
            result.admitted.append(sized)
            continue
        ledger.replace(ref, sized.workload.needs)
        over = ledger.over_budget(ref)
        if over is not None and candidate.service.spec.memory.mode == "enforce":
            ledger.undo()
            result.refused.append(sized)
            continue
        if over is not None:
            message = f"{over}; started all the same, by memory.mode: warn"
            result.warnings.append(Finding("MemoryOverridden", ref, "spec.memory.mode", message))
        result.admitted.append(sized)
    return result


def reason(sized: Sized, admission: Admission, others: Iterable[Admission] = ()) -> str | None:
    """Why it does not fit beside who is admitted, and what would; None when it fits."""
    room = admission.room(sized)
    if len(sized.requests) != 1:
        return shortfall(sized.workload.needs, room)
    elsewhere = [other.room() for other in others if other is not admission]
    return refusal(sized.requests[0], room, elsewhere)


def explain(sized: Sized, admission: Admission, others: Iterable[Admission]) -> Finding:
    """The refusal as a finding, at the setting that most likely has to change."""
    stated = (
        "contextSize" if "context_size" in sized.candidate.service.spec.model_fields_set else ""
    )
    message = reason(sized, admission, others)
    assert message is not None, "a refused service does not fit"
    field_path = f"spec.{stated}" if stated else "spec"
    return Finding("MemoryFits", sized.workload.ref, field_path, message)


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
        answer = estimates.of(ref, known_facts, asked)
        made.append(answer)
        each.append(needs(answer, asked, known, layers, _identity(model)))
        requests.append(Request(known_facts, asked, _identity(model)))
    total = each[0] if not runtime.serves_many else resident(each, _places(candidate))
    sized = replace(workload, memory=max(made, key=lambda m: m.total_bytes), needs=total)
    return Sized(candidate, sized, tuple(requests), known)


def _identity(model: ModelFile) -> str:
    return model.sha256 or model.source


def _places(candidate: Candidate) -> int:
    return candidate.service.spec.router.resident
