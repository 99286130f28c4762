"""What a cluster has no kind for, in words. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from reconciler.api.meta import ObjectRef
from reconciler.kube.objects import ObjectId, kind_of

_NAMED = 3


def left_out_note(left_out: Iterable[ObjectId]) -> str:
    """What a plan says of objects of services that are left out; empty: there are none."""
    by_kind = defaultdict[tuple[str, str], list[str]](list)
    for oid in left_out:
        by_kind[oid.kind, kind_of(oid).project].append(f"{oid.namespace}/{oid.name}")
    return "; ".join(_note(kind, project, names) for (kind, project), names in by_kind.items())


def left_out_by_service(left_out: Mapping[ObjectId, ObjectRef]) -> Mapping[ObjectRef, str]:
    """What the status of each service says."""
    notes = defaultdict[ObjectRef, list[str]](list)
    for oid, ref in left_out.items():
        notes[ref].append(f"no {oid.kind}, as {kind_of(oid).project} is not installed")
    return {ref: "; ".join(texts) for ref, texts in notes.items()}


def not_installed_note(missing: Sequence[str], cluster: str) -> str:
    """What a plan says of our own kinds that are missing, by name; empty: none is."""
    if not missing:
        return ""
    return (
        f"kinds of the fleet are not installed there ({', '.join(missing)}):"
        f" `reconcile install --cluster {cluster}` does it"
    )


def _note(kind: str, project: str, names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{project} is not installed there: no {kind} for {', '.join(names[:_NAMED])}{more}"
