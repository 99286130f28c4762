"""What a cluster's own statuses say of how fast pods write, for a look from elsewhere. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from reconciler.api.meta import ObjectRef
from reconciler.kube.instance_entry import SPEED, is_of_pool
from reconciler.kube.objects import Manifest, ObjectId, ref_of


def reported_speeds(documents: Mapping[ObjectId, Manifest]) -> dict[ObjectRef, float]:
    """The tokens that the pods of each service write a second; of those that are said."""
    services = (oid for oid in documents if oid.kind == "InferenceService")
    by_ref = ((ref_of(oid), [*_speeds(documents[oid])]) for oid in services)
    return {ref: math.fsum(speeds) for ref, speeds in by_ref if speeds}


def _speeds(live: Manifest) -> Iterator[float]:
    for entry in (live.get("status") or {}).get("instances") or ():
        speed = entry.get(SPEED)
        if is_of_pool(entry) and isinstance(speed, int | float):
            yield float(speed)
