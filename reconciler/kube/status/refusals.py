"""Which services were refused for their memory, read from the statuses that said so. Pure.

What a model takes is known from its header, and a hub may be silent when a reconciler has just
started: a service that was refused a moment ago would then be started after all.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from reconciler.api.meta import ObjectRef
from reconciler.fleet.workload import Workload
from reconciler.kube.diff.untouched import is_untouched
from reconciler.kube.object_set import ObjectSet
from reconciler.kube.objects import ObjectId, document_id
from reconciler.kube.running.readiness import conditions_of
from reconciler.kube.status.conditions import MEMORY_FITS
from reconciler.memo import Memo

_STANDS = "this stands until the header of its model can be read again"


def memory_refusals(
    meant: Mapping[ObjectRef, Workload],
    documents: ObjectSet,
    wanted: ObjectSet,
    known: Memo[ObjectRef, str],
) -> Mapping[ObjectRef, str]:
    """Why each service, whose memory is not known now, was refused as it is declared. `documents`
    are the live ones, `wanted` those that this fleet applies; `known` is from the pass before."""
    refusals = {}
    for ref, workload in meant.items():
        if workload.needs or workload.suspended or not workload.has_remote_models:
            continue
        oid = document_id(ref)
        given = (documents.state(oid), wanted.state(oid))
        if why := known.find(ref, given, partial(_refusal, oid, documents, wanted)):
            refusals[ref] = why if why.endswith(_STANDS) else f"{why}; {_STANDS}"
    known.keep(meant)
    return refusals


def _refusal(oid: ObjectId, documents: ObjectSet, wanted: ObjectSet) -> str:
    """What the condition says; empty: nothing, or it is about another generation."""
    live = documents.get(oid)
    if live is None:
        return ""
    fits = conditions_of(live.get("status") or {}).get(MEMORY_FITS, {})
    is_current = fits.get("observedGeneration") == live["metadata"].get("generation")
    if fits.get("reason") != "MemoryFits" or fits.get("status") != "False" or not is_current:
        return ""  # mostly so: the rest takes longer
    declared = wanted.get(oid)
    if declared is not None and not is_untouched(declared, live):
        return ""
    return str(fits.get("message", ""))
