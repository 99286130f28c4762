"""What a node followed last, on its own disk: it serves on when the cluster is gone for good."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agent.cluster.following import Followed, Grounds
from agent.state import atomic_write
from reconciler.errors import SourceError
from reconciler.kube.objects import Manifest, ObjectId, id_of
from reconciler.kube.reading.documents import document

_FORMAT = 1
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError)


def save(path: Path, location: str, followed: Followed) -> None:
    """Replace it whole, fsynced. Raises SourceError."""
    record = {
        "format": _FORMAT,
        "location": location,
        "revision": followed.revision,
        "objects": [_slim(found) for found in followed.objects.values()],
        "grounds": [[*oid, g.definition, g.namespace] for oid, g in followed.grounds.items()],
    }
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomic_write(path, json.dumps(record).encode())
    except OSError as error:
        raise SourceError(f"{path}: cannot be written: {error.strerror}") from error


def saved(path: Path, location: str) -> Followed | None:
    """What was followed last of this cluster; None where nothing was, or the file is damaged."""
    try:
        record = json.loads(path.read_bytes())
        if record["format"] != _FORMAT or record["location"] != location:
            return None
        return Followed(
            str(record["revision"]), _objects(record["objects"]), _grounds(record["grounds"])
        )
    except (OSError, *_DAMAGE):
        return None


def _slim(found: Manifest) -> dict[str, Any]:
    """Its author's words, and what later versions of it are held against."""
    slim = document(found)
    generation = found["metadata"].get("generation")
    if generation is not None:
        slim["metadata"]["generation"] = generation
    return slim


def _objects(raw: Iterable[Manifest]) -> dict[ObjectId, Manifest]:
    return {id_of(found): found for found in raw}


def _grounds(raw: Iterable[Any]) -> dict[ObjectId, Grounds]:
    return {
        ObjectId(group, kind, namespace, name): Grounds(definition, within)
        for group, kind, namespace, name, definition, within in raw
    }
