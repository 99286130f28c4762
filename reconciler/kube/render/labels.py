"""The labels of what we make, and the ones by which pods are found. Pure."""

from __future__ import annotations

from typing import Any

from reconciler.kube.objects import (
    FLEET_LABEL,
    FORCE_FIELDS_ANNOTATION,
    MANAGED_BY_LABEL,
    MANAGER,
    SERVICE_LABEL,
)
from reconciler.kube.render.placed import Placed

COMPONENT_LABEL = "app.kubernetes.io/component"
SERVER, FETCH = "server", "fetch"


def labels(placed: Placed) -> dict[str, str]:
    """On every object of a service."""
    fleet = {FLEET_LABEL: placed.fleet} if placed.fleet else {}
    return {MANAGED_BY_LABEL: MANAGER, **fleet, SERVICE_LABEL: placed.workload.ref.name}


def pod_labels(placed: Placed, component: str) -> dict[str, str]:
    return labels(placed) | {COMPONENT_LABEL: component}


def selector(placed: Placed) -> dict[str, str]:
    """Finds the pods that answer, and never one that fetches. It cannot be changed in place, so it
    has nothing in it that could change."""
    return {SERVICE_LABEL: placed.workload.ref.name, COMPONENT_LABEL: SERVER}


def metadata(
    placed: Placed, name: str, annotations: dict[str, str] | None = None
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": name,
        "namespace": placed.workload.ref.namespace,
        "labels": labels(placed),
    }
    said = {**(annotations or {}), **_forced(placed)}
    return found | ({"annotations": said} if said else {})


def _forced(placed: Placed) -> dict[str, str]:
    """What the service says of fields that another program has: it is about its objects."""
    fields = placed.service.metadata.annotations.get(FORCE_FIELDS_ANNOTATION)
    return {FORCE_FIELDS_ANNOTATION: fields} if fields else {}
