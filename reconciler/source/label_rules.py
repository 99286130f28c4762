"""Labels that no API server takes, and selectors that no Node can have. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.labels import key_problem, value_problem
from reconciler.api.meta import Resource
from reconciler.api.problem import Finding
from reconciler.source.places import field_path


def labels(thing: Resource) -> Iterator[Finding]:
    for where, pairs in _labelled(thing):
        for key, value in pairs.items():
            if problem := key_problem(key) or value_problem(value):
                yield Finding("Schema", thing.ref, field_path([*where, key]), problem)
    for key in thing.metadata.annotations:
        if problem := key_problem(key.lower()):  # of annotations, case does not count
            field = field_path(["metadata", "annotations", key])
            yield Finding("Schema", thing.ref, field, problem)


def _labelled(thing: Resource) -> Iterator[tuple[tuple[str, ...], Mapping[str, str]]]:
    yield ("metadata", "labels"), thing.metadata.labels
    if type(thing) is InferenceService:
        yield ("spec", "placement", "nodeSelector"), thing.spec.placement.node_selector
    elif type(thing) is FleetNode and thing.spec.kubernetes:
        yield ("spec", "kubernetes", "nodeSelector"), thing.spec.kubernetes.node_selector
