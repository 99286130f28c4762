"""The HTTPRoute and the InferencePool: how requests of a Gateway get to a service's pods. Pure.

What a server fills in by itself inside of lists is written here: then both sides say the same.
"""

from __future__ import annotations

from typing import Any

from reconciler.api.meta import ObjectRef
from reconciler.api.traffic import HttpRoute
from reconciler.kube.objects import Manifest
from reconciler.kube.render.labels import metadata, selector
from reconciler.kube.render.subject import Subject
from reconciler.placement.names import object_name

_GATEWAY = "gateway.networking.k8s.io"
_EXTENSION = "inference.networking.k8s.io"
_ANY = {"path": {"type": "PathPrefix", "value": "/"}}


def routes(subject: Subject) -> tuple[Manifest, ...]:
    """The way to the service by a Gateway; it stays while the service is suspended, as its Service
    does, and has no effect there on the others that it names."""
    route = subject.placed.service.spec.http_route
    if route is None:
        return ()
    spec: dict[str, Any] = {
        "parentRefs": [{"group": _GATEWAY, "kind": "Gateway", **p} for p in route.parent_refs],
        "rules": [_rule(route, subject)],
    }
    return (
        {
            "apiVersion": f"{_GATEWAY}/v1",
            "kind": "HTTPRoute",
            "metadata": metadata(subject.placed, subject.name),
            "spec": spec | ({"hostnames": [*route.hostnames]} if route.hostnames else {}),
        },
    )


def pools(subject: Subject) -> tuple[Manifest, ...]:
    """Its pods, for an endpoint picker to choose from."""
    pool = subject.placed.service.spec.inference_pool
    if pool is None:
        return ()
    picker = pool.endpoint_picker_ref
    return (
        {
            "apiVersion": f"{_EXTENSION}/v1",
            "kind": "InferencePool",
            "metadata": metadata(subject.placed, subject.name),
            "spec": {
                "selector": {"matchLabels": selector(subject.placed)},
                "targetPorts": [{"number": subject.container_port}],
                "endpointPickerRef": {
                    "group": "",
                    "kind": "Service",
                    "name": picker.name,
                    "port": {"number": picker.port.number},
                    "failureMode": picker.failure_mode,
                },
            },
        },
    )


def _rule(route: HttpRoute, subject: Subject) -> dict[str, Any]:
    namespace = subject.placed.workload.ref.namespace
    others = (
        (object_name(ObjectRef("InferenceService", namespace, b.name)), b)
        for b in route.backend_refs
    )
    rule: dict[str, Any] = {
        "matches": [*route.matches] or [_ANY],
        "backendRefs": [
            _own(subject) | {"weight": route.weight},
            *(_service(name, b.port) | {"weight": b.weight} for name, b in others),
        ],
    }
    stated = {"filters": [*route.filters], "timeouts": dict(route.timeouts)}
    return rule | {name: value for name, value in stated.items() if value}


def _own(subject: Subject) -> dict[str, Any]:
    if subject.placed.service.spec.inference_pool is None:
        return _service(subject.name, subject.port)
    return {"group": _EXTENSION, "kind": "InferencePool", "name": subject.name}


def _service(name: str, port: int) -> dict[str, Any]:
    return {"group": "", "kind": "Service", "name": name, "port": port}
