"""Claims that services name and that are not in the cluster: their pods could not start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from reconciler.api.claim_source import on_claim
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import ObjectRef
from reconciler.kube.client.errors import Denied
from reconciler.kube.objects import ObjectId

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from reconciler.fleet.workload import Workload
    from reconciler.kube.informer.strangers import Strangers
    from reconciler.loop.desired import Desired


def absent_claims(
    desired: Desired, target: str, own: Container[ObjectId], strangers: Strangers
) -> Mapping[ObjectRef, str]:
    """The first such claim of each service that is to run there. What may not be read is not
    judged. Raises ClusterError."""
    named = {
        (workload.ref, ObjectId("", "PersistentVolumeClaim", workload.ref.namespace, claim)): None
        for workload in desired.assignment.workloads
        if workload.target == target and not workload.suspended
        for claim in _claims(desired, workload)
    }
    asked = [oid for _, oid in named if oid not in own]
    if not asked:
        return {}
    try:
        there = strangers.under(asked)
    except Denied:
        return {}
    lacking = [(ref, oid.name) for ref, oid in named if oid not in own and oid not in there]
    return dict(reversed(lacking))


def _claims(desired: Desired, workload: Workload) -> Iterable[str]:
    service = desired.fleet.get(InferenceService, workload.ref)
    own = service.spec.model_cache.claim_name if service else None
    places = (on_claim(model.source) for model in workload.model_files)
    return [*sorted({place.claim for place in places if place}), *([own] if own else [])]
