"""Why a node or pool cannot take a service, regardless of memory. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.api.claim_source import on_claim
from reconciler.api.fleetnode import FleetNode
from reconciler.api.image_source import in_image
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.model import Model
from reconciler.api.speculative import GUESSES
from reconciler.api.vendors import maker_of
from reconciler.capacity.admission import Facts
from reconciler.fleet.fleet import Fleet
from reconciler.memory import is_projector
from reconciler.placement.candidate import model_ref, runtime_of
from reconciler.placement.gpus import gpu_misfit
from reconciler.placement.guessing import cannot_guess
from reconciler.placement.names import reserved_namespace
from reconciler.placement.pods import no_pods
from reconciler.runtimes import RUNTIMES, resolve
from reconciler.runtimes.runtime import Runtime

_TAKE_PROJECTORS = " or ".join(row.name for row in RUNTIMES.values() if row.takes_projector)
_ENDINGS = (".gguf", ".safetensors")  # a source without one leaves its format to be guessed


def misfit(service: InferenceService, node: FleetNode, fleet: Fleet) -> tuple[str, str, str] | None:
    """(rule, field, message) of why a node cannot take a service; None if it can."""
    name = node.metadata.name
    runtime = runtime_of(service, node)
    if node.spec.drain and not (service.spec.suspend or service.spec.replicas == 0):
        message = f"node {name} is drained (drain: true); name another one in placement.nodes"
        return "NodeUnavailable", "spec.placement", message
    offered = node.spec.runtimes
    if offered is not None and not any(resolve(text) is runtime for text in offered):
        or_there = "" if node.spec.agent is None else ", or to --runtimes of its agent"
        message = (
            f"node {name} offers {', '.join(offered) or 'no runtime'}, not {runtime.name};"
            f" add it to spec.runtimes of the FleetNode{or_there}"
        )
        return "NodeCapability", "spec.runtime", message
    if node.spec.agent is not None and not runtime.engine.programs:
        message = f"{runtime.name} runs in pods: {runtime.engine.install_hint}; {name} has an agent"
        return "NodeCapability", "spec.runtime", message
    if why := _not_exposable(node, runtime):
        return "NodeCapability", "spec", why
    if node.spec.kubernetes is not None and (no := no_pods(service, node, runtime, fleet)):
        return no
    if too_few := gpu_misfit(service, node):
        return too_few
    named = reserved_namespace(service.ref)
    if named and node.spec.agent is not None and node.spec.agent.clusters:
        return "ObjectName", *named  # it would be a Service there, as for a pool
    for at, model_name in _named(service, runtime):
        model = fleet.get(Model, model_ref(service, model_name))
        if model is None:
            continue
        if node.spec.kubernetes is not None and (local := _of_the_node(model)):
            message = (
                f"Model {model_name} is a file of the node ({local}), which pods do not"
                " read: name a source that can be fetched, or use a node with an agent"
            )
            return "NodeCapability", at, message
        if node.spec.agent is not None and (mounted := _of_pods(model)):
            message = (
                f"Model {model_name} lies in a volume of a cluster ({mounted}), which pods alone"
                " mount: name a source that can be fetched or a file:// of the node, or use a pool"
            )
            return "NodeCapability", at, message
        if model.format not in runtime.formats:
            return "FormatMismatch", at, _other_format(runtime, model)
        if model.projector is not None and not runtime.takes_projector:
            message = (
                f"{runtime.name} takes no projector, and Model {model_name} has spec.mmproj:"
                f" serve it by {_TAKE_PROJECTORS}, or declare a Model without it"
            )
            return "FormatMismatch", at, message
        accelerator = model.spec.hardware.accelerator
        if accelerator and not _has(node, accelerator):
            return (
                "NodeCapability",
                at,
                f"node {name} has no {accelerator}, which {model_name} wants",
            )
    return None


def mistaken(
    service: InferenceService, node: FleetNode, fleet: Fleet, facts: Facts
) -> tuple[str, str, str] | None:
    """(rule, field, message) of a projector in a model's place, or the reverse, or of what cannot
    guess for a model, judged by headers; None if neither."""
    runtime = runtime_of(service, node)
    for at_model, name in _named(service, runtime) if facts else ():
        model = fleet.get(Model, model_ref(service, name))
        for part, at, _ in model.parts if model else ():
            known = facts.get(part.ref) if part.format == "gguf" else None
            if known is None or is_projector(known) == (part is not model):
                continue
            what = "a projector, which belongs in spec.mmproj"
            if part is not model:
                what = f"a model ({known.architecture}) and not the projector of one"
            return "ProjectorMismatch", at_model, f"Model {name} {at} is {what}"
    return cannot_guess(service, facts) if facts and GUESSES in runtime.fields else None


def _named(service: InferenceService, runtime: Runtime) -> Iterator[tuple[str, str]]:
    """The names of the Models of which it needs the files there, each with the field that has
    it."""
    for at, reference in service.references:
        if reference.kind == "Model" and (
            at.endswith((".modelRef", ".name"))
            or (reference.name in service.draft_names.values() and GUESSES in runtime.fields)
        ):
            yield at, reference.name


def _of_the_node(model: Model) -> str | None:
    """The first source that only the machine itself can read."""
    sources = (part.spec.source for part, _, _ in model.parts)
    return next((source for source in sources if source.lower().startswith("file://")), None)


def _of_pods(model: Model) -> str | None:
    """The first source that only pods can read."""
    sources = (part.spec.source for part, _, _ in model.parts)
    return next((source for source in sources if on_claim(source) or in_image(source)), None)


def _other_format(runtime: Runtime, model: Model) -> str:
    first = min(runtime.formats)
    takes = " or ".join(sorted(runtime.formats))
    spec, name = model.spec, model.metadata.name
    problem = f"{runtime.name} loads {takes}; Model {name} is {model.format}"
    if spec.format is not None or spec.source.lower().endswith(_ENDINGS):
        return f"{problem}; name a runtime that loads {model.format}, or a Model that is {takes}"
    return (
        f"{problem}, by the name of its source; if its files are {first}, write `format: {first}`"
        " in the Model"
    )


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
    """Whether the fleet states such a device for the node. A node without stated hardware is
    assumed to have it, even if its agent knows better: planners elsewhere cannot know."""
    hardware = node.spec.hardware
    stated = hardware.devices if "devices" in hardware.model_fields_set else ()
    if accelerator == "cpu" or (not stated and hardware.os is None):
        return accelerator != "metal" or node.spec.kubernetes is None  # a Mac runs no pods
    vendor = maker_of(accelerator)
    return any(vendor is None or device.vendor == vendor for device in stated)
