"""The GPUs that a service asks for, by their resource's name or by number, and whether a machine
states them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from reconciler.api.fleetnode import Device, FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.problem import Finding
from reconciler.api.vendors import vendor_of
from reconciler.capacity.admission import Admission


class AskedGpus(NamedTuple):
    """`text` is as its author wrote it; `vendor` None: any."""

    field: str
    text: str
    number: int
    vendor: str | None


def gpu_misfit(service: InferenceService, node: FleetNode) -> tuple[str, str, str] | None:
    """(rule, field, message) of a machine that states too few GPUs; None if it states enough, or
    states nothing of its devices. A pool's are Kubernetes' to count."""
    if node.spec.kubernetes is not None or not _states_devices(node):
        return None
    for asked in _asked(service):
        count = sum(_is_of(device, asked) for device in node.spec.hardware.devices)
        if count < asked.number:
            whose = f"{asked.vendor} device" if asked.vendor else "device"
            states = f"{count} {whose}{'' if count == 1 else 's'}" if count else f"no {whose}"
            message = (
                f"`{asked.text}` asks for {asked.number}, and node {node.metadata.name} states"
                f" {states}; name another node, or take the request out"
            )
            return "NodeCapability", asked.field, message
    return None


def unstated_gpus(admissions: Iterable[Admission]) -> Iterator[Finding]:
    """Services that ask a machine for GPUs which does not say what it has: they run on what is
    there."""
    for admission in admissions:
        node = admission.node
        if admission.is_pool or _states_devices(node):
            continue
        for asked_for in admission.asked:
            for asked in _asked(asked_for.service):
                name = node.metadata.name
                message = (
                    f"`{asked.text}` is not checked: node {name} does not state its devices, and"
                    " without one the service runs on the processor; `fleet-agent probe` there"
                    " prints the `hardware` block to add"
                )
                yield Finding("DevicesUnknown", asked_for.service.ref, asked.field, message)


def _asked(service: InferenceService) -> Iterator[AskedGpus]:
    spec = service.spec
    if "devices" in spec.model_fields_set:
        yield AskedGpus("spec.devices", f"devices: {spec.devices}", spec.devices, None)
    if spec.main_gpu:
        yield AskedGpus("spec.mainGPU", f"mainGPU: {spec.main_gpu}", spec.main_gpu + 1, None)
    for part, values in (("limits", spec.resources.limits), ("requests", spec.resources.requests)):
        for name in sorted(filter(vendor_of, values)):
            vendor, text = vendor_of(name), str(values[name])
            if text.isdecimal() and int(text) > 0:
                yield AskedGpus(f"spec.resources.{part}", f"{name}: {text}", int(text), vendor)


def _states_devices(node: FleetNode) -> bool:
    """Whether the fleet says what devices it has: a list, or the whole hardware without one."""
    hardware = node.spec.hardware
    return "devices" in hardware.model_fields_set or hardware.os is not None


def _is_of(device: Device, asked: AskedGpus) -> bool:
    return asked.vendor is None or device.vendor == asked.vendor
