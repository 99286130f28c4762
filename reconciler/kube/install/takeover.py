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
_NAMED = 3  # objects of one loss
_ADDED = ("managedFields", "uid", "resourceVersion", "generation", "creationTimestamp", "selfLink")


@dataclass(frozen=True, slots=True)
class Misfit:
    """A field of an object that our definitions do not have or do not accept."""

    oid: ObjectId
    field: str
    message: str


@dataclass(frozen=True, slots=True)
class ForeignInstallation:
    """The definitions of another owner, and all their objects."""

    definitions: tuple[Manifest, ...]
    objects: tuple[Manifest, ...]

    def misfits(self) -> tuple[Misfit, ...]:
        """Everything in `spec` and `metadata` that would be lost or refused, by object. A status is
        rebuilt by its reconciler, and what a default of its definition wrote is nobody's loss."""
        schemas = {d["spec"]["names"]["kind"]: _schema(d) for d in self.definitions}
        return tuple(
            misfit
            for foreign in self.objects
            for misfit in misfits_of(foreign)
            if not _is_default(schemas.get(foreign["kind"], {}), foreign, misfit.field)
        )


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


def losses(misfits: Iterable[Misfit]) -> Iterator[str]:
    """A line for each field and what is wrong with it, with how many objects it is of."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for misfit in misfits:
        name = f"{misfit.oid.namespace}/{misfit.oid.name}".lstrip("/")
        groups.setdefault((misfit.oid.kind, misfit.field, misfit.message), []).append(name)
    for (kind, field, message), names in groups.items():
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        count = f"{len(names)} object{'s' * (len(names) > 1)}"
        yield f"{kind} {field} ({count}: {', '.join(names[:_NAMED])}{more}): {message}"


def _schema(definition: Manifest) -> Mapping[str, Any]:
    """The one of the version that is stored."""
    for version in definition["spec"].get("versions") or ():
        if version.get("storage"):
            schema: Mapping[str, Any] = (version.get("schema") or {}).get("openAPIV3Schema") or {}
            return schema
    return {}


def _is_default(schema: Mapping[str, Any], value: Any, field: str) -> bool:  # noqa: ANN401 - JSON
    """Whether a field is as its definition's defaults make it."""
    for name in field.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return False
        value, schema = value[name], (schema.get("properties") or {}).get(name) or {}
    return _is_defaulted(schema, value)


def _is_defaulted(schema: Mapping[str, Any], value: Any) -> bool:  # noqa: ANN401 - JSON
    if "default" in schema and schema["default"] == value:
        return True
    below = schema.get("properties") or {}
    if not isinstance(value, Mapping) or not value:
        return False
    return all(_is_defaulted(below.get(name) or {}, part) for name, part in value.items())


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
