"""A Service whose pods are replaced by a node: it selects them as long as there are any. Pure.

Kubernetes maintains the endpoints of Services with a selector, and of no others: removing the
selector while pods exist would leave their addresses behind the name for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reconciler.kube.endpoints.slices import SLICE_MANAGED_BY_LABEL, SLICE_SERVICE_LABEL
from reconciler.kube.objects import Manifest, ObjectId, id_of

_CONTROLLERS = (
    "endpointslice-controller.k8s.io",
    "endpointslicemirroring-controller.k8s.io",
)


def until_pods_are_gone(
    wanted: Iterable[Manifest],
    live: Mapping[ObjectId, Manifest],
    slices: Mapping[ObjectId, Manifest],
) -> tuple[Manifest, ...]:
    """The wanted manifests; a Service without a selector keeps its current one until no pod's
    address is behind it. `slices` are those of the fleet's Services, whoever created them."""
    return tuple(_kept(manifest, live, slices) for manifest in wanted)


def _kept(
    manifest: Manifest, live: Mapping[ObjectId, Manifest], slices: Mapping[ObjectId, Manifest]
) -> Manifest:
    if manifest["kind"] != "Service" or manifest["spec"].get("selector"):
        return manifest
    oid = id_of(manifest)
    spec: Mapping[str, Any] = live.get(oid, {}).get("spec", {})
    if not spec.get("selector") or not _leads_to_pods(oid, slices):
        return manifest
    kept = {"selector": spec["selector"], "ports": spec["ports"]}
    return {**manifest, "spec": {**manifest["spec"], **kept}}


def _leads_to_pods(service: ObjectId, slices: Mapping[ObjectId, Manifest]) -> bool:
    """By the slices that Kubernetes creates, whose names begin with the Service's."""
    for oid in slices:
        if oid.namespace != service.namespace or not oid.name.startswith(f"{service.name}-"):
            continue
        live = slices[oid]
        labels = live["metadata"].get("labels") or {}
        theirs = labels.get(SLICE_MANAGED_BY_LABEL) in _CONTROLLERS
        if theirs and labels.get(SLICE_SERVICE_LABEL) == service.name and live.get("endpoints"):
            return True
    return False
