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


def fewest_and_most(thing: Resource) -> Iterator[Finding]:
    """Neither an API server nor KEDA takes an autoscaler with more pods at least than at most."""
    scaling = thing.spec.autoscaling if type(thing) is InferenceService else None
    if scaling is not None and scaling.min_replicas > scaling.max_replicas:
        message = (
            f"at least {scaling.min_replicas} pods, and at most {scaling.max_replicas}; write"
            f" maxReplicas: {scaling.min_replicas}, or fewer minReplicas"
        )
        yield Finding("Schema", thing.ref, "spec.autoscaling.minReplicas", message)


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


def unanswered_shares(declared: DeclaredObjects) -> Iterator[Finding]:
    """A Gateway goes on sending a service its share, whether it has pods or not."""
    by_ref = {service.ref: service for service in declared.services}
    for service in declared.services:
        route = service.spec.http_route
        if route is None or not route.backend_refs:
            continue
        shares = [(service.ref, route.weight, "spec.httpRoute.weight")]
        for i, backend in enumerate(route.backend_refs):
            ref = service.ref._replace(name=backend.name)
            shares.append((ref, backend.weight, f"spec.httpRoute.backendRefs[{i}].weight"))
        for ref, weight, field in shares:
            other = by_ref.get(ref)
            if weight and other is not None and _has_no_pods(other):
                message = (
                    f"{ref.name} is suspended: requests that are its share are answered with an"
                    " error; write weight: 0"
                )
                yield Finding("ShareUnanswered", service.ref, field, message)


def _has_no_pods(service: InferenceService) -> bool:
    spec = service.spec
    return spec.suspend or (spec.replicas == 0 and spec.autoscaling is None)
