"""Labels and annotations that no API server takes, and selectors that no Node can have. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.labels import key_problem, value_problem
from reconciler.api.meta import Resource
from reconciler.api.problem import Finding
from reconciler.source.places import field_path

_MOST_BYTES = 2**18  # of all annotations of an object


def labels(thing: Resource) -> Iterator[Finding]:
    for where, pairs in _labelled(thing):
        for key, value in pairs.items():
            if problem := key_problem(key) or value_problem(value):
                yield Finding("Schema", thing.ref, field_path([*where, key]), problem)
    for where, pairs in _annotated(thing):
        for key in pairs:
            if problem := key_problem(key.lower()):  # of annotations, case does not count
                yield Finding("Schema", thing.ref, field_path([*where, key]), problem)
        if (size := sum(len(k.encode()) + len(v.encode()) for k, v in pairs.items())) > _MOST_BYTES:
            most = f"an API server takes {_MOST_BYTES:,} in all; shorten them"
            yield Finding("Schema", thing.ref, field_path(where), f"{size:,} bytes, and {most}")


def _labelled(thing: Resource) -> Iterator[tuple[tuple[str, ...], Mapping[str, str]]]:
    yield ("metadata", "labels"), thing.metadata.labels
    if type(thing) is InferenceService:
        yield ("spec", "placement", "nodeSelector"), thing.spec.placement.node_selector
        yield ("spec", "nodeSelector"), thing.spec.node_selector
        yield ("spec", "podLabels"), thing.spec.pod_labels
    elif type(thing) is FleetNode and thing.spec.kubernetes:
        yield ("spec", "kubernetes", "nodeSelector"), thing.spec.kubernetes.node_selector


def _annotated(thing: Resource) -> Iterator[tuple[tuple[str, ...], Mapping[str, str]]]:
    yield ("metadata", "annotations"), thing.metadata.annotations
    if type(thing) is InferenceService:
        yield ("spec", "podAnnotations"), thing.spec.pod_annotations
