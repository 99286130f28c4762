"""The labels of our objects, and the selector of pods. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciler.api.meta import FORCE_FIELDS_ANNOTATION
from reconciler.kube.objects import (
    FLEET_LABEL,
    MANAGED_BY_LABEL,
    MANAGER,
    SERVICE_LABEL,
)
from reconciler.kube.render.placed import PlacedService

COMPONENT_LABEL = "app.kubernetes.io/component"
SERVER, FETCH, BENCHMARK = "server", "fetch", "benchmark"


def labels(placed: PlacedService) -> dict[str, str]:
    """On every object of a service."""
    fleet = {FLEET_LABEL: placed.fleet} if placed.fleet else {}
    return {MANAGED_BY_LABEL: MANAGER, **fleet, SERVICE_LABEL: placed.workload.ref.name}


def pod_labels(placed: PlacedService, component: str) -> dict[str, str]:
    return labels(placed) | {COMPONENT_LABEL: component}


def is_benchmark(manifest: Mapping[str, Any]) -> bool:
    """Whether an object is of a measurement: it says nothing of how its service is."""
    return (manifest["metadata"].get("labels") or {}).get(COMPONENT_LABEL) == BENCHMARK


def selector(placed: PlacedService) -> dict[str, str]:
    """Selects serving pods, and never one that fetches. A selector is immutable, so it contains
    nothing that could change."""
    return {SERVICE_LABEL: placed.workload.ref.name, COMPONENT_LABEL: SERVER}


def metadata(
    placed: PlacedService, name: str, annotations: dict[str, str] | None = None
) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "name": name,
        "namespace": placed.workload.ref.namespace,
        "labels": labels(placed),
    }
    notes = {**(annotations or {}), **_forced(placed)}
    return fields | ({"annotations": notes} if notes else {})


def _forced(placed: PlacedService) -> dict[str, str]:
    """The service's statement about fields that another program owns: it concerns its objects."""
    fields = placed.service.metadata.annotations.get(FORCE_FIELDS_ANNOTATION)
    return {FORCE_FIELDS_ANNOTATION: fields} if fields else {}
