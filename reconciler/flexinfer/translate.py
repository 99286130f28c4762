"""A ModelDeployment -> a Model and an InferenceService, and what is to be said of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from reconciler.api.meta import API_VERSION
from reconciler.flexinfer.backends import Formats, backend_of, cached_source, source_of
from reconciler.flexinfer.deployments import FIELDS, IDLE
from reconciler.foreign.remark import Remark
from reconciler.foreign.rows import applied, tree_of

_NAMED = ("name", "namespace", "labels", "annotations")
_OF_MODEL = {"spec.source": "spec.model", "spec.format": "spec.backend"}
_OF_SERVICE = {"spec.runtime": "spec.backend", "spec.modelRef": "spec.model"}


class Part(NamedTuple):
    """A document of ours, and under which field of its author a value of it stands."""

    content: dict[str, Any]
    written: Mapping[str, str]


class Parts(NamedTuple):
    """What one document is to us."""

    parts: tuple[Part, ...]
    remarks: tuple[Remark, ...]


def unmade(content: Mapping[str, Any], formats: Formats) -> Remark | None:
    """Why nothing is made of a document, as far as it can be read; None: something is."""
    spec = content.get("spec")
    name, model = (
        (spec.get("backend"), spec.get("model")) if isinstance(spec, dict) else (None, None)
    )
    if not isinstance(name, str) or not isinstance(model, str):
        return None  # which is a mistake in it
    backend = backend_of(name, formats)
    if backend is None:
        text = f"nothing is made of it: the backend {name} is no runtime here; {_INSTEAD}"
        return Remark("NotRead", "spec.backend", text)
    if source_of(backend, model) is None:
        text = f"nothing is made of it: {model} says no place to fetch it from; write an address"
        return Remark("NotRead", "spec.model", f"{text} such as hf://ORG/REPO/FILE.gguf")
    return None


def with_cache(
    content: dict[Any, Any], beside: Iterable[object], formats: Formats
) -> dict[Any, Any]:
    """The document with the address of its model, where a ModelCache beside it says it."""
    spec, metadata = content.get("spec"), content.get("metadata")
    if not isinstance(spec, dict) or not isinstance(metadata, dict):
        return content
    name, model, cache = (spec.get(key) for key in ("backend", "model", "modelCacheRef"))
    backend = backend_of(name, formats) if isinstance(name, str) else None
    if backend is None or not isinstance(model, str) or source_of(backend, model) is not None:
        return content
    source = _cache_sources(beside).get((str(metadata.get("namespace", "")), str(cache)))
    address = cached_source(backend, model, source) if source else None
    return {**content, "spec": {**spec, "model": address}} if address else content


def _cache_sources(contents: Iterable[object]) -> dict[tuple[str, str], object]:
    """What the ModelCaches among these documents fetch, by namespace and name."""
    sources: dict[tuple[str, str], object] = {}
    for content in contents:
        if isinstance(content, dict) and content.get("kind") == "ModelCache":
            spec, metadata = content.get("spec"), content.get("metadata")
            if isinstance(spec, dict) and isinstance(metadata, dict):
                key = str(metadata.get("namespace", "")), str(metadata.get("name"))
                sources[key] = spec.get("source")
    return sources


_INSTEAD = "an InferenceService with runtime custom runs any image"


def translated(content: Mapping[str, Any], formats: Formats) -> Parts:
    """The parts of a document that passed its schema, and of which something is made."""
    spec, metadata = content["spec"], content["metadata"]
    backend = backend_of(spec["backend"], formats)
    made = applied(_TREE, _without_idle(content), "FlexInfer")
    assert backend is not None
    assert made is not None  # its backend is a row
    named = {key: metadata[key] for key in _NAMED if key in metadata}
    head = {"apiVersion": API_VERSION, "metadata": named}
    model = {"source": source_of(backend, spec["model"]), "format": backend.format}
    runtime = {"runtime": backend.runtime} if backend.runtime else {}
    service = {"modelRef": metadata["name"], **runtime, **made.content["spec"]}
    return Parts(
        (
            Part({**head, "kind": "Model", "spec": model}, _OF_MODEL),
            Part(
                {**head, "kind": "InferenceService", "spec": service},
                {**_OF_SERVICE, **made.written},
            ),
        ),
        made.remarks,
    )


def _without_idle(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Where pods are to stay that are idle, so is what they have in memory."""
    spec = content["spec"]
    if not spec.get("minReplicas"):
        return content
    return {**content, "spec": {k: v for k, v in spec.items() if f"spec.{k}" != IDLE}}


_TREE = tree_of(FIELDS)
