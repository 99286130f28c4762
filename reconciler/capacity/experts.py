"""How many layers leave their experts to the machine, where a service says `moeCPULayers: auto`.
Pure.

The fewest with which the model has room on every device of its node, were it alone there. What
neighbours take does not count, so that the number stays as they come and go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.problem import Finding
from reconciler.api.quantity import show_bytes
from reconciler.capacity.pools import MemoryPool
from reconciler.capacity.smaller import ModelRequest
from reconciler.fleet.workload import COUNTED, PoolNeed, Workload


@dataclass(frozen=True, slots=True)
class ExpertCounts:
    """The requests of a service with numbers in the place of `auto`. `numbers` are by the path of
    the setting, `lines` of arithmetic by the place of the model."""

    requests: tuple[ModelRequest, ...]
    numbers: Mapping[str, int] = field(default_factory=dict)
    lines: Mapping[int, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


def counted(
    service: InferenceService,
    workload: Workload,
    requests: Sequence[ModelRequest],
    known: Sequence[MemoryPool],
    node: FleetNode,
) -> ExpertCounts:
    """`requests` are those of the workload's models, in their order; `known` are the node's pools
    with the budgets of the service."""
    if all(request.settings.cpu_moe_layers == 0 for request in requests):  # most of them
        return ExpertCounts(tuple(requests))
    counts = {
        index: _count(request, known, node)
        for index, request in enumerate(requests)
        if request.settings.cpu_moe_layers is None
    }
    paths = (
        f"models[{m.name}].{COUNTED}" if service.spec.models else COUNTED for m in workload.models
    )
    named = dict(enumerate(paths))
    return ExpertCounts(
        requests=tuple(
            _with(request, counts[i].layers) if i in counts else request
            for i, request in enumerate(requests)
        ),
        numbers={named[i]: count.layers for i, count in counts.items()},
        lines={
            i: f"experts  those of {count.layers} layers stay on the machine, by auto: {count.why}"
            for i, count in counts.items()
        },
        findings=(
            *_without_experts(service, workload, requests),
            *_notes(service, counts, node),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Count:
    """The number of one model, and why it is that one. `is_guess`: nobody knows how large the
    devices are."""

    layers: int
    why: str
    is_guess: bool = False
    has_experts: bool = True


def _count(request: ModelRequest, known: Sequence[MemoryPool], node: FleetNode) -> _Count:
    every = len(request.facts.expert_bytes)
    if not any(request.facts.expert_bytes):
        return _Count(0, "it is no mixture of experts", has_experts=False)
    if any(_is_device(pool.name) for pool in known):
        layers = _fewest(request, known)
        return _Count(layers, _why(request, known, layers))
    if _shares_memory(node):
        return _Count(0, "no device there has memory of its own")
    return _Count(every, "the memory of its devices is not known", is_guess=True)


def _shares_memory(node: FleetNode) -> bool:
    """Whether it is known that no device of a node has memory of its own."""
    hardware = node.spec.hardware
    if hardware.devices:
        return all(device.memory == "unified" for device in hardware.devices)
    return hardware.memory is not None


def _fewest(request: ModelRequest, known: Sequence[MemoryPool]) -> int:
    """None, or as few as are enough; all where not even that is. The first layer that leaves its
    experts costs room besides, in which they are copied for a batch: from there on each takes
    less. One that has none to leave may do: devices then work on one batch at a time."""
    for layers in (0, 1):
        if not _too_small(request, known, layers):
            return layers
    sizes = request.facts.expert_bytes
    low = next(layer for layer, size in enumerate(sizes, start=1) if size)
    high = len(sizes)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if _too_small(request, known, middle) else (low, middle)
    return low


def _why(request: ModelRequest, known: Sequence[MemoryPool], layers: int) -> str:
    if not layers:
        return "the devices have room for all of it"
    left = _too_small(request, known, layers)
    short = left or _too_small(request, known, layers - 1)
    assert short is not None, "one less would have been enough"
    return (
        f"{'even so' if left else f'with {layers - 1}'} it takes {show_bytes(short.bytes)} of"
        f" {short.pool}, whose budget is {show_bytes(short.budget_bytes)}"
    )


def _too_small(request: ModelRequest, known: Sequence[MemoryPool], layers: int) -> PoolNeed | None:
    """What it takes of the first device that has no room for so much."""
    needs = _with(request, layers).needs_in(known)
    over = (n for n in needs if _is_device(n.pool) and n.bytes > n.budget_bytes)
    return next(over, None)


def _is_device(pool: str) -> bool:
    return pool.startswith("device")


def _with(request: ModelRequest, layers: int) -> ModelRequest:
    return replace(request, settings=replace(request.settings, cpu_moe_layers=layers))


def _notes(
    service: InferenceService, counts: Mapping[int, _Count], node: FleetNode
) -> Iterator[Finding]:
    """What `auto` stands for on a node, or that nobody here can count it."""
    spec, name = service.spec, node.metadata.name
    for index, count in counts.items():
        if not count.has_experts:
            continue
        own = spec.models is not None and spec.models[index].moe_cpu_layers is not None
        at = f"spec.models[{index}].{COUNTED}" if own else f"spec.{COUNTED}"
        number = f"auto on {name} is {count.layers}: {count.why}"
        if not count.is_guess:
            yield Finding("NumberCounted", service.ref, at, number)
        elif node.spec.agent is not None and node.spec.memory.budget is None:
            message = f"auto is counted by the agent of {name}, which knows its devices"
            yield Finding("NumberCounted", service.ref, at, message)
        else:
            message = f"{number}; for fewer state hardware.devices of its FleetNode"
            yield Finding("MemoryUnknown", service.ref, at, message)


def _without_experts(
    service: InferenceService, workload: Workload, requests: Sequence[ModelRequest]
) -> Iterator[Finding]:
    """Experts that are to stay on the machine, of a model that has none."""
    spec = service.spec
    for index, (model, request) in enumerate(zip(workload.models, requests, strict=True)):
        facts = request.facts
        if request.settings.cpu_moe_layers != 0 and facts.block_bytes and not facts.expert_bytes:
            own = spec.models[index] if spec.models else spec
            stated = own.moe_cpu_layers or own.moe_cpu_offload
            which = "moeCPUOffload" if (own if stated else spec).moe_cpu_offload else COUNTED
            at = f"spec.models[{index}].{which}" if spec.models and stated else f"spec.{which}"
            message = (
                f"{model.name} is no mixture of experts: no tensor of it is an expert; remove it"
            )
            yield Finding("FieldIgnored", service.ref, at, message)
