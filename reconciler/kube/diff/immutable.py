"""Which fields cannot be changed in place, by kind: the object is then replaced. Pure. The API
server reports those that are not in the table (errors.Immutable)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reconciler.kube.diff.difference import Cause, Difference
from reconciler.kube.diff.managed import Path
from reconciler.kube.objects import ObjectId

# From the update validation of each kind (kubernetes pkg/apis/*/validation, v1.36).
_IMMUTABLE: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("apps", "Deployment"): ("f:spec/f:selector",),
    ("batch", "Job"): (
        "f:spec/f:template",
        "f:spec/f:selector",
        "f:spec/f:completions",
        "f:spec/f:completionMode",
        "f:spec/f:podFailurePolicy",
        "f:spec/f:backoffLimitPerIndex",
    ),
    ("", "Service"): ("f:spec/f:clusterIP",),
    ("discovery.k8s.io", "EndpointSlice"): ("f:addressType",),
    ("", "PersistentVolumeClaim"): (
        "f:spec/f:accessModes",
        "f:spec/f:storageClassName",
        "f:spec/f:volumeMode",
        "f:spec/f:volumeName",
        "f:spec/f:selector",
        "f:spec/f:dataSource",
        "f:spec/f:dataSourceRef",
    ),
}


def forcing(oid: ObjectId, differences: Iterable[Difference]) -> tuple[Difference, ...]:
    """The differences that require a replacement."""
    fixed = [_path(text) for text in _IMMUTABLE.get((oid.group, oid.kind), ())]
    return tuple(
        difference
        for difference in differences
        if difference.cause is not Cause.CONTROLLER
        and any(difference.path[: len(path)] == path for path in fixed)
    )


def _path(text: str) -> Path:
    return tuple(text.split("/"))
