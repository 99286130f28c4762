"""What a service says of who scales it and who routes to it, beside what the API server checks.
Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from reconciler.api.inferenceservice import InferenceService
from reconciler.api.problem import Finding
from reconciler.placement.pods import DEFAULT_PORT
from reconciler.source.suggest import did_you_mean

if TYPE_CHECKING:
    from reconciler.api.meta import Resource
    from reconciler.source.declared import DeclaredObjects


def woken_from_none(thing: Resource) -> Iterator[Finding]:
    """A service without pods counts no requests, and no load."""
    scaling = thing.spec.autoscaling if type(thing) is InferenceService else None
    if scaling is None:
        return
    none = scaling.min_replicas == 0 or (scaling.keda and scaling.keda.idle_replica_count == 0)
    if none and not (scaling.keda and scaling.keda.triggers):
        message = (
            "nothing sees a request while there is no pod; add keda.triggers that do, such as"
            " prometheus of the gateway before it, or keep one"
        )
        yield Finding("Schema", thing.ref, "spec.autoscaling", message)


def backends(declared: DeclaredObjects) -> Iterator[Finding]:
    """Services that a route leads to beside its own: there, and at that port."""
    for service in declared.services:
        route = service.spec.http_route
        for i, backend in enumerate(route.backend_refs if route else ()):
            at = f"spec.httpRoute.backendRefs[{i}]"
            ref = service.ref._replace(name=backend.name)
            other = declared.objects.get(ref)
            if isinstance(other, InferenceService):
                port = other.spec.endpoint.port or DEFAULT_PORT
                if port != backend.port:
                    message = (
                        f"{backend.name} is at {port}, not at {backend.port}; write port: {port}"
                    )
                    yield Finding("Schema", service.ref, f"{at}.port", message)
            elif ref not in declared.refused:
                near = [
                    s.metadata.name for s in declared.services if s.ref.namespace == ref.namespace
                ]
                hint = did_you_mean(backend.name, near) or "; add it, or correct the name"
                message = f'no InferenceService named "{backend.name}"{hint}'
                yield Finding("DanglingReference", service.ref, f"{at}.name", message)
