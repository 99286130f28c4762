"""What is to be counted from a model's header, and cannot be yet. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.model_settings import AUTO
from reconciler.capacity.admission import Facts
from reconciler.fleet.workload import COUNTED
from reconciler.memory.overrides import MACHINE
from reconciler.placement.candidate import model_ref, runtime_of


def uncounted(
    service: InferenceService, node: FleetNode, facts: Facts
) -> tuple[str, str, str] | None:
    """(rule, field, message) of why pods are not made, or made anew, before a header is known: with
    all experts on the machine they would start, and stay so. A machine reads it before it starts
    anything."""
    if node.spec.kubernetes is None or COUNTED not in runtime_of(service, node).fields:
        return None
    for name, at in _automatic(service):
        if model_ref(service, name) not in facts:
            message = (
                f"auto is counted from the header of Model {name}, which is not known here yet: a"
                " number, or moeCPUOffload: true, does not wait for it"
            )
            return "HeaderNeeded", at, message
    return None


def nowhere(service: InferenceService, node: FleetNode) -> tuple[str, str, str] | None:
    """(rule, field, message) of tensors for devices that a node has not: an engine would end."""
    hardware, runtime = node.spec.hardware, runtime_of(service, node)
    if hardware.devices or hardware.memory is None:
        return None
    if "tensorOverrides" not in runtime.fields:
        return None
    entries = ((f"spec.models[{i}]", entry) for i, entry in enumerate(service.spec.models or ()))
    for at, part in (("spec", service.spec), *entries):
        for index, text in enumerate(part.tensor_overrides or ()):
            wanted = [b for each in text.split(",") if (b := each.rpartition("=")[2]) != MACHINE]
            if wanted:
                message = f"node {node.metadata.name} has no device, and {wanted[0]} is one"
                return "NodeCapability", f"{at}.tensorOverrides[{index}]", message
    return None


def _automatic(service: InferenceService) -> Iterator[tuple[str, str]]:
    """The models whose number is to be counted, each with the field that says so."""
    spec = service.spec
    for index, part in enumerate(spec.models or (spec,)):
        own = part.moe_cpu_layers
        every = spec.moe_cpu_offload if part.moe_cpu_offload is None else part.moe_cpu_offload
        if every or (spec.moe_cpu_layers if own is None else own) != AUTO:
            continue
        at = f"spec.models[{index}].{COUNTED}" if spec.models and own else f"spec.{COUNTED}"
        yield service.model_names[index], at
