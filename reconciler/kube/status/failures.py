"""What a cluster's own statuses say of what its API server refused, for a look from elsewhere.
Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from reconciler.api.meta import ObjectRef
from reconciler.kube.objects import Manifest, ObjectId, ref_of
from reconciler.kube.status.conditions import APPLIED, READY

_FAILED = "ApplyFailed"


def reported_failures(documents: Mapping[ObjectId, Manifest]) -> dict[ObjectRef, tuple[str, str]]:
    """Reason and message of each service of which an object was refused when it was applied last,
    and of the Fleet, which also names what has no document there to say it."""
    asked = {"InferenceService": READY, "Fleet": APPLIED}
    failures = ((oid, failure) for oid in documents for failure in _failures(documents[oid], asked))
    return {ref_of(oid): failure for oid, failure in failures}


def _failures(live: Manifest, asked: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for condition in (live.get("status") or {}).get("conditions") or ():
        if condition.get("type") == asked.get(live["kind"]) and condition.get("reason") == _FAILED:
            yield _FAILED, str(condition.get("message") or "")
