"""Annotations and labels under our own prefix that nothing reads. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.api.meta import (
    ACCEPT_ANNOTATION,
    FORCE_FIELDS_ANNOTATION,
    GROUP,
    HOLD_ANNOTATION,
    MEASURE_AGAIN_ANNOTATION,
    MEMORY_BUDGET_ANNOTATION,
    PRUNE_ANNOTATION,
    Resource,
)
from reconciler.source.places import field_path
from reconciler.source.suggest import closest

_PREFIX = f"{GROUP}/"
READ = (
    MEMORY_BUDGET_ANNOTATION,
    HOLD_ANNOTATION,
    PRUNE_ANNOTATION,
    FORCE_FIELDS_ANNOTATION,
    MEASURE_AGAIN_ANNOTATION,
    ACCEPT_ANNOTATION,
)
_ONLY_ON = {MEMORY_BUDGET_ANNOTATION: "an InferenceService", ACCEPT_ANNOTATION: "a Fleet"}
# Written by us on objects of a cluster, and included in the output of `kubectl get -o yaml`.
WRITTEN = frozenset(
    f"{_PREFIX}{name}"
    for name in (
        "adopted",
        "applied",
        "benchmark-attempt",
        "benchmark-key",
        "fleet",
        "inference-service",
        "inputs",
        "inputs-digest",
        "needs",
        "news-at",
        "node",
        "render-digest",
    )
)


def unknown_names(thing: Resource) -> Iterator[tuple[str, str]]:
    """(field, message) of each that has no effect on this object."""
    metadata = thing.metadata
    for name in metadata.annotations:
        if name.startswith(_PREFIX) and name not in WRITTEN and (why := _annotation(thing, name)):
            yield field_path(["metadata", "annotations", name]), why
    for name in metadata.labels:
        if name.startswith(_PREFIX) and name not in WRITTEN and (why := _label(thing, name)):
            yield field_path(["metadata", "labels", name]), why


def _annotation(thing: Resource, name: str) -> str | None:
    only = _ONLY_ON.get(name)
    if only is not None and only.split()[1] != thing.kind:
        return f"has an effect on {only} only; remove it"
    return None if name in READ else _unknown("annotation", name)


def _label(thing: Resource, name: str) -> str | None:
    if name in READ:
        return "it is an annotation: move it to metadata.annotations"
    # Labels of a node are for selectors, and may have any name.
    return None if thing.kind == "FleetNode" else _unknown("label", name)


def _unknown(what: str, name: str) -> str:
    if right := closest(name.removeprefix(_PREFIX), [n.removeprefix(_PREFIX) for n in READ]):
        return f"nothing reads this {what}; did you mean the annotation {_PREFIX}{right}?"
    known = ", ".join(n.removeprefix(_PREFIX) for n in READ)
    return f"nothing reads this {what}; remove it (known annotations: {known})"
