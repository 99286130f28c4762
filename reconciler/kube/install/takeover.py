"""Definitions of our kinds that another controller installed: whether it is active, and what would
be lost.

LLMKube has the same API group. Its objects stay, and our definitions apply to them from then on:
the API server drops unknown fields at the next write of an object.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.api.kinds import KINDS
from reconciler.api.meta import GROUP
from reconciler.atomic import sync_directory
from reconciler.kube.client.errors import NotFound
from reconciler.kube.crsource.documents import document
from reconciler.kube.install.writer import is_ours
from reconciler.kube.objects import OWNED_KINDS, Manifest, ObjectId, OwnedKind, id_of
from reconciler.kube.yaml_text import dump_all
from reconciler.source.mistakes import explain
from reconciler.source.validators import validator

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer

_DEFINITION = OWNED_KINDS["apiextensions.k8s.io", "CustomResourceDefinition"]
_ADDED = ("managedFields", "uid", "resourceVersion", "generation", "creationTimestamp", "selfLink")


@dataclass(frozen=True, slots=True)
class Misfit:
    """A field of an object that our definitions do not have or do not accept."""

    oid: ObjectId
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.oid.label} {self.field}: {self.message}"


@dataclass(frozen=True, slots=True)
class ForeignInstallation:
    """The definitions of another owner, and all their objects."""

    definitions: tuple[Manifest, ...]
    objects: tuple[Manifest, ...]

    def misfits(self) -> tuple[Misfit, ...]:
        """Everything in `spec` and `metadata` that would be lost or refused, by object. A status is
        rebuilt by its reconciler."""
        return tuple(misfit for foreign in self.objects for misfit in misfits_of(foreign))


def held(api: ApiServer) -> ForeignInstallation:
    """Raises ClusterError."""
    definitions: list[Manifest] = []
    objects: list[Manifest] = []
    for kind in KINDS:
        row = OWNED_KINDS[GROUP, kind]
        oid = ObjectId(_DEFINITION.group, _DEFINITION.kind, "", f"{row.plural}.{GROUP}")
        live = api.get(oid)
        if live is None or is_ours(live):
            continue
        definitions.append(live)
        objects += _listed(api, row)
    return ForeignInstallation(tuple(definitions), tuple(objects))


def misfits_of(live: Manifest) -> Iterator[Misfit]:
    """What our schema finds wrong in one object as its author wrote it."""
    oid = id_of(live)
    for mistake in explain(validator(live["kind"]), document(live)):
        yield Misfit(oid, mistake.field or "it", mistake.message)


def write_backup(folder: Path, cluster: str, installation: ForeignInstallation) -> Path:
    """Every definition and object, in a form for `kubectl apply --server-side -f`; durable when
    this returns. Raises OSError."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    path = folder / f"fleet-takeover-{re.sub(r'[^A-Za-z0-9_.-]', '-', cluster)}-{stamp}.yaml"
    manifests = [_plain(m) for m in (*installation.definitions, *installation.objects)]
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(handle, "w", encoding="utf-8") as file:
        file.write(dump_all(manifests))
        file.flush()
        os.fsync(file.fileno())
    sync_directory(folder)
    return path


def replace_definitions(
    api: ApiServer, live: Iterable[Manifest], wanted: Mapping[str, Manifest]
) -> None:
    """Replace each as a whole, so that nothing of the other owner's stays in it (a conversion
    webhook, a release's name); a concurrent change wins. Raises Conflict, ClusterError."""
    for old in live:
        new = wanted[old["metadata"]["name"]]
        version = {"resourceVersion": old["metadata"]["resourceVersion"]}
        api.replace({**new, "metadata": {**new["metadata"], **version}})


def _plain(live: Manifest) -> dict[str, Any]:
    """Without the fields that the server maintains."""
    metadata = {k: v for k, v in live["metadata"].items() if k not in _ADDED}
    return {**live, "metadata": metadata}


def _listed(api: ApiServer, kind: OwnedKind) -> Sequence[Manifest]:
    try:
        return api.list(kind).items
    except NotFound:
        return ()
