"""Why a node or a pool cannot take a service, whatever memory it has. Pure."""

from __future__ import annotations

from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.model import Model
from reconciler.fleet import Fleet
from reconciler.placement.candidate import model_ref, runtime_of
from reconciler.placement.pods import ACCELERATOR_OF, no_pods
from reconciler.runtime import Runtime
from reconciler.runtimes import resolve

_VENDOR_OF = {accelerator: vendor for vendor, accelerator in ACCELERATOR_OF.items()}


def misfit(service: InferenceService, node: FleetNode, fleet: Fleet) -> tuple[str, str, str] | None:
    """(rule, field, message) of why a node cannot take a service; None where it can."""
    name = node.metadata.name
    runtime = runtime_of(service, node)
    if node.spec.drain:
        return "NodeUnavailable", "spec.placement", f"node {name} is drained (drain: true)"
    offered = node.spec.runtimes
    if offered is not None and not any(resolve(text) is runtime for text in offered):
        message = f"node {name} offers {', '.join(offered) or 'no runtime'}, not {runtime.name}"
        return "NodeCapability", "spec.runtime", message
    if why := _not_exposable(node, runtime):
        return "NodeCapability", "spec", why
    if node.spec.kubernetes is not None and (no := no_pods(service, node, runtime, fleet)):
        return no
    for i, model_name in enumerate(service.model_names):
        model = fleet.get(Model, model_ref(service, model_name))
        if model is None:
            continue
        at = "spec.modelRef" if service.spec.models is None else f"spec.models[{i}].name"
        if model.format not in runtime.formats:
            takes = " or ".join(sorted(runtime.formats))
            message = f"{runtime.name} loads {takes}; Model {model_name} is {model.format}"
            return "FormatMismatch", at, message
        accelerator = model.spec.hardware.accelerator
        if accelerator and not _has(node, accelerator):
            return (
                "NodeCapability",
                at,
                f"node {name} has no {accelerator}, which {model_name} wants",
            )
    return None


def _not_exposable(node: FleetNode, runtime: Runtime) -> str | None:
    """Why the runtime cannot listen there as the node's FleetNode says."""
    name, agent = node.metadata.name, node.spec.agent
    if agent is None or agent.expose == "none":
        return None
    if agent.host_ip is None:
        return (
            f"node {name} has expose: {agent.expose} and no address for it;"
            " state its spec.agent.hostIP"
        )
    if agent.expose == "key" and runtime.key_variable is None:
        return (
            f"node {name} has expose: key, and {runtime.name} cannot ask for a key;"
            " use another runtime or node, or expose: open if everybody on its network may use it"
        )
    return None


def _has(node: FleetNode, accelerator: str) -> bool:
    """Whether the node states such a device. A node that states no hardware is not doubted."""
    hardware = node.spec.hardware
    if accelerator == "cpu" or (not hardware.devices and hardware.os is None):
        return True
    vendor = _VENDOR_OF.get(accelerator)
    return any(vendor is None or device.vendor == vendor for device in hardware.devices)
