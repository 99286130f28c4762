"""What a node followed last, on its own disk: it keeps serving if the cluster is gone for good."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agent.cluster.following import Followed, OwnerUids
from reconciler.api.errors import SourceError
from reconciler.atomic import atomic_write
from reconciler.kube.crsource.documents import document
from reconciler.kube.objects import Manifest, ObjectId, id_of
from reconciler.ownfile import read_or_move

_FORMAT = 1
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError)


def save(path: Path, location: str, followed: Followed) -> None:
    """Replace the file atomically, with fsync. Raises SourceError."""
    record = {
        "format": _FORMAT,
        "location": location,
        "revision": followed.revision,
        "objects": [_slim(live) for live in followed.objects.values()],
        "grounds": [[*oid, g.definition, g.namespace] for oid, g in followed.owner_uids.items()],
    }
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomic_write(path, json.dumps(record).encode())
    except OSError as error:
        raise SourceError(f"{path}: cannot be written: {error.strerror}") from error


def saved(path: Path, location: str) -> Followed | None:
    """What was last followed of this cluster; None if nothing was, or the file is damaged."""
    return read_or_move(path, lambda record: _followed(record, location))


def _followed(record: Mapping[str, Any], location: str) -> Followed | None:
    if record["format"] != _FORMAT or record["location"] != location:
        return None
    return Followed(
        str(record["revision"]), _objects(record["objects"]), _owner_uids(record["grounds"])
    )


def _slim(live: Manifest) -> dict[str, Any]:
    """The author's fields, and those that later versions are compared with."""
    slim = document(live)
    generation = live["metadata"].get("generation")
    if generation is not None:
        slim["metadata"]["generation"] = generation
    return slim


def _objects(raw: Iterable[Manifest]) -> dict[ObjectId, Manifest]:
    return {id_of(live): live for live in raw}


def _owner_uids(raw: Iterable[Any]) -> dict[ObjectId, OwnerUids]:
    return {
        ObjectId(group, kind, namespace, name): OwnerUids(definition, within)
        for group, kind, namespace, name, definition, within in raw
    }
