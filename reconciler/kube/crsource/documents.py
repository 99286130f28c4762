"""Objects of a cluster as the documents of a fleet: input of `load` where the fleet is not files.
Pure.

A document has what its author wrote and nothing that the server, kubectl or an applier added, so
that it is the same text however it was applied.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from reconciler.api.kinds import KINDS
from reconciler.api.meta import GROUP
from reconciler.kube.json_text import to_json
from reconciler.kube.object_set import decoded
from reconciler.kube.objects import (
    FLEET_LABEL,
    MANAGED_BY_LABEL,
    PART_OF_LABEL,
    SERVICE_LABEL,
    Manifest,
    id_of,
    ref_of,
)
from reconciler.kube.yaml_text import dump
from reconciler.source.checkout import ObjectFile
from reconciler.source.ours import is_too_deep

_ADDED_LABELS = (FLEET_LABEL, MANAGED_BY_LABEL, PART_OF_LABEL, SERVICE_LABEL)
_OWN_ANNOTATIONS = f"{GROUP}/"  # the rest are notes of kubectl, Flux and Argo CD to themselves


def documents(objects: Iterable[Manifest]) -> tuple[ObjectFile, ...]:
    """A file for each object of our kinds, sorted by path."""
    files = [object_file(live, live) for live in objects if live.get("kind") in KINDS]
    return tuple(sorted(files, key=lambda file: file.path))


def object_file(live: Manifest, kept: Manifest) -> ObjectFile:
    """An object as a file. `kept` is the same object in the form that the file holds, such as a
    LazyManifest."""
    text = to_json(document(live))
    return ObjectFile(
        path_of(live),
        hashlib.sha256(text).hexdigest(),
        ref_of(id_of(live)),
        len(text),
        lambda: document(decoded(kept)),
        lambda: _text(document(decoded(kept))),
    )


def _text(content: dict[str, Any]) -> str:
    """YAML with one line per field, so that a problem or a change can name its line. It is never
    parsed: an invalid object affects only itself."""
    # Lines do not matter for what is refused for its depth, and writing it would recurse as deep.
    return dump({**content, "spec": {}} if is_too_deep(content) else content)


def document(manifest: Manifest) -> dict[str, Any]:
    """One object as its author wrote it."""
    live = manifest["metadata"]
    metadata: dict[str, Any] = {"name": live["name"]}
    if live.get("namespace"):
        metadata["namespace"] = live["namespace"]
    labels = {k: v for k, v in (live.get("labels") or {}).items() if k not in _ADDED_LABELS}
    given = live.get("annotations") or {}
    notes = {k: v for k, v in given.items() if k.startswith(_OWN_ANNOTATIONS)}
    metadata |= {"labels": labels} if labels else {}
    metadata |= {"annotations": notes} if notes else {}
    made = {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"], "metadata": metadata}
    return made | ({"spec": manifest["spec"]} if "spec" in manifest else {})


def path_of(live: Manifest) -> str:
    """The path that plans show: `default/InferenceService/chat.yaml`."""
    metadata = live["metadata"]
    within = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{within}{live['kind']}/{metadata['name']}.yaml"


def content_digest(files: Iterable[ObjectFile]) -> str:
    """The digest of all documents, in any order (hex)."""
    whole = hashlib.sha256()
    for file in sorted(files, key=lambda f: f.path):
        whole.update(f"{file.path}\0{file.identity}\0".encode())
    return whole.hexdigest()
