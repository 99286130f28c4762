"""What a document says to no effect, so that nobody relies on it."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pydantic import BaseModel

from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import ObjectRef, Resource
from reconciler.api.model import Model
from reconciler.problem import Finding
from reconciler.runtime import ignored_fields

if TYPE_CHECKING:
    from reconciler.source.rules import Declared


def without_effect(thing: Resource) -> Iterator[Finding]:
    """What an object says to no effect, wherever it runs."""
    for where, why in _overruled(thing):
        yield Finding("FieldIgnored", thing.ref, where, f"{why}; remove it")
    for where in _NOT_USED_YET.get(thing.kind, ()):
        if _is_given(thing, where):
            message = "this version does not act on it yet"
            yield Finding("FieldIgnored", thing.ref, where, message)


def ignored(declared: Declared) -> Iterator[Finding]:
    """What services say to no effect under their runtime, or on their nodes."""
    for service in declared.services:
        for where, why in _ignored_by_service(service, declared):
            yield Finding("FieldIgnored", service.ref, where, f"{why}; remove it")
    yield from _secrets_of_agents(declared)


def _secrets_of_agents(declared: Declared) -> Iterator[Finding]:
    """Secrets of a cluster that no pod is given, as only nodes with an agent fetch the model."""
    fetched: dict[ObjectRef, bool] = {}  # by an agent only
    for service in declared.services:
        nodes = declared.stated_nodes(service)
        by_agents = bool(nodes) and all(node.spec.agent is not None for node in nodes)
        for reference in service.references:
            fetched[reference.ref] = by_agents and fetched.get(reference.ref, True)
    for ref, by_agents in fetched.items():
        model = declared.objects.get(ref)
        if by_agents and isinstance(model, Model) and model.spec.source_secret_ref is not None:
            message = (
                "it names a Secret of a cluster, and only nodes with an agent fetch this model;"
                " give the agents --hf-token-file, and remove it"
            )
            yield Finding("FieldIgnored", ref, "spec.sourceSecretRef", message)


# Part of the kinds, and without effect so far: nobody shall rely on them.
_NOT_USED_YET: Mapping[str, tuple[str, ...]] = {
    "FleetNode": ("spec.costPerHour",),
    "InferenceService": ("spec.benchmark",),
    "Model": ("spec.mmproj",),
}


def _is_given(thing: BaseModel, path: str) -> bool:
    """Whether the document gives that field another value than its default."""
    part: object = thing
    default: object = None
    for name in path.split("."):
        if not isinstance(part, BaseModel):
            return False
        key, default = _attribute(type(part), name)
        if key not in part.model_fields_set:
            return False
        part = getattr(part, key)
    return part != default


@functools.cache
def _attribute(part: type[BaseModel], name: str) -> tuple[str, object]:
    """The attribute of a camelCase name, and its default. Kept: every object is asked."""
    fields = part.model_fields.items()
    return next((key, f.default) for key, f in fields if (f.alias or key) == name)


def _overruled(thing: Resource) -> Iterator[tuple[str, str]]:
    if not thing.namespaced and "namespace" in thing.metadata.model_fields_set:
        yield "metadata.namespace", f"a {thing.kind} has no namespace"
    if isinstance(thing, Model) and thing.spec.files:
        from reconciler.models import is_folder

        if not is_folder(thing.spec.source):
            yield "spec.files", "the source names one file"
    if isinstance(thing, FleetNode | InferenceService):
        memory = thing.spec.memory
        if memory.budget is not None and memory.fraction is not None:
            yield "spec.memory.fraction", "budget is given, which decides"


def _ignored_by_service(service: InferenceService, declared: Declared) -> Iterator[tuple[str, str]]:
    given = service.spec.model_fields_set
    rows = declared.runtimes_of(service)
    if len(rows) == 1:
        for where in ignored_fields(service, rows[0]):
            yield where, f"runtime {rows[0].name} does not use it"
    on_kubernetes_only = [f for f in _KUBERNETES_ONLY if f in given]
    nodes = declared.stated_nodes(service) if on_kubernetes_only else []
    if nodes and all(node.spec.agent is not None for node in nodes):
        for name in on_kubernetes_only:
            yield f"spec.{_KUBERNETES_ONLY[name]}", "it has no effect on nodes with an agent"


_KUBERNETES_ONLY = {
    "autoscaling": "autoscaling",
    "image": "image",
    "image_pull_secrets": "imagePullSecrets",
}
