"""A service as it would run on a node or a pool, before its memory is checked. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import HOLD_ANNOTATION, PRUNE_ANNOTATION, ObjectRef
from reconciler.api.model import Model
from reconciler.api.speculative import GUESSES
from reconciler.capacity.admission import Candidate, Facts
from reconciler.fleet.fleet import Fleet
from reconciler.fleet.model_file import ModelFile, model_file, sized
from reconciler.fleet.workload import LOOPBACK, Exposure, Workload
from reconciler.placement.pods import DEFAULT_PORT, cluster_of, image_of, pool_of
from reconciler.runtimes import DEFAULT_RUNTIME, RUNTIMES, resolve
from reconciler.runtimes.runtime import Runtime
from reconciler.runtimes.settings import lifecycle, pod_settings, scale, settings


def candidate(service: InferenceService, node: FleetNode, fleet: Fleet, facts: Facts) -> Candidate:
    """The service as it would run on the node or pool, with its effective settings."""
    runtime = runtime_of(service, node)
    pool = node.spec.kubernetes
    rendered, acted_on = settings(service, runtime), lifecycle(service, runtime)
    if pool is not None:
        rendered |= pod_settings(service) | {"image": image_of(service, runtime, node, fleet)}
        # a pod has its own termination grace period
        if drain := acted_on.pop("rollout.drainTimeout", None):
            rendered["rollout.drainTimeout"] = drain
        acted_on |= scale(service)
    drafts = service.draft_names if GUESSES in runtime.fields else {}
    models = {
        name: model
        for name in (*service.model_names, *drafts.values())
        if (model := fleet.get(Model, model_ref(service, name)))
    }
    workload = Workload(
        ref=service.ref,
        node=node.metadata.name,
        runtime=runtime.name,
        models=tuple(
            _model_file(service, name, drafts, fleet, facts)
            for name in service.model_names
            if name not in models or any(models[name].parts)
        ),
        settings=rendered,
        lifecycle=acted_on | _annotations(service),
        origin=fleet.origins[service.ref],
        port=service.spec.endpoint.port or (DEFAULT_PORT if pool else None),
        drain_timeout_s=service.spec.rollout.drain_timeout,
        suspended=service.spec.suspend or service.spec.replicas == 0,
        takes_new=not node.spec.unschedulable,
        listen=_listen(node),
        cluster=cluster_of(node),
        pool=pool_of(node, pool, service, models.values()) if pool else None,
    )
    return Candidate(service, workload, runtime, models)


_PRIORITY = {"critical": 0, "high": 1, "normal": 2, "low": 3, "batch": 4}


def turn(candidate: Candidate) -> tuple[int, ObjectRef]:
    """Sort key of admission: the more important first, then by name."""
    return _PRIORITY[candidate.service.spec.priority], candidate.service.ref


def _listen(node: FleetNode) -> Exposure:
    """Where the node's services listen, if `misfit` allows it."""
    agent = node.spec.agent
    if agent is None or agent.expose == "none" or agent.host_ip is None:
        return LOOPBACK
    return Exposure(agent.expose, agent.host_ip)


def _annotations(service: InferenceService) -> dict[str, str]:
    """Annotations that a target acts on, also after the object is gone."""
    wanted = {"hold": HOLD_ANNOTATION, "prune": PRUNE_ANNOTATION}
    given = service.metadata.annotations
    return {name: given[key] for name, key in wanted.items() if key in given}


def _model_file(
    service: InferenceService, name: str, drafts: Mapping[str, str], fleet: Fleet, facts: Facts
) -> ModelFile:
    model = fleet.get(Model, model_ref(service, name))
    assert model is not None, "validation refuses a dangling reference"
    file = model_file(model, fleet)
    draft = fleet.get(Model, model_ref(service, drafts[name])) if name in drafts else None
    if draft is not None:
        file = replace(file, draft=replace(model_file(draft, fleet), projector=None))
    return sized(file, facts, service.metadata.namespace)


def model_ref(service: InferenceService, name: str) -> ObjectRef:
    return ObjectRef("Model", service.metadata.namespace, name)


def runtime_of(service: InferenceService, node: FleetNode) -> Runtime:
    """The service's own, else the node's default, else llama-server (validation checked the
    names)."""
    for text in (service.spec.runtime, node.spec.default_runtime):
        if text is not None and (runtime := resolve(text)):
            return runtime
    return RUNTIMES[DEFAULT_RUNTIME]
