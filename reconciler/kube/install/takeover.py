"""Definitions of our kinds that another controller installed: whether it is active, and what would
be lost.

LLMKube has the same API group. Its objects stay, and our definitions apply to them from then on:
the API server drops unknown fields at the next write of an object.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from reconciler.api.kinds import KINDS
from reconciler.api.meta import GROUP
from reconciler.atomic import sync_directory
from reconciler.kube.client.errors import NotFound
from reconciler.kube.crsource.documents import document
from reconciler.kube.install.writer import applier_of, is_ours
from reconciler.kube.kinds import LEASE, SERVED_KINDS
from reconciler.kube.objects import OWNED_KINDS, Manifest, ObjectId, OwnedKind, id_of
from reconciler.kube.yaml_text import dump_all
from reconciler.source.mistakes import explain
from reconciler.source.validators import validator
from reconciler.timestamps import parse_timestamp

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer

# Part of the image's or the Lease's name -> its owner.
OWNERS: Mapping[str, str] = MappingProxyType({"llmkube": "LLMKube"})
_HEARTBEAT = "llmkube.ai/agent-heartbeat"  # on a slice, by LLMKube's agent on a Mac
_ALIVE_S = 180.0  # since a Lease or a heartbeat was renewed: several periods of either
_DEFINITION = OWNED_KINDS["apiextensions.k8s.io", "CustomResourceDefinition"]
_LOOKED_AT = (
    _DEFINITION,
    OWNED_KINDS["apps", "Deployment"],
    OwnedKind("apps", "v1", "StatefulSet", "statefulsets", 0),
    OwnedKind("apps", "v1", "DaemonSet", "daemonsets", 0),
    SERVED_KINDS["", "Pod"],
    LEASE,
    OWNED_KINDS["discovery.k8s.io", "EndpointSlice"],
)
_ADDED = ("managedFields", "uid", "resourceVersion", "generation", "creationTimestamp", "selfLink")


@dataclass(frozen=True, slots=True)
class Alive:
    """A controller that would keep writing these objects, and how to stop it."""

    what: str
    owner: str
    way_out: str

    def __str__(self) -> str:
        return f"{self.what} of {self.owner} is live; {self.way_out}"


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


def alive(api: ApiServer) -> tuple[Alive, ...]:
    """Known owners that run, hold a Lease or renew endpoints. Raises ClusterError."""
    now = time.time()
    return tuple(a for kind in _LOOKED_AT for live in _listed(api, kind) for a in signs(live, now))


def signs(live: Manifest, now: float) -> Iterator[Alive]:
    """The signs of life of one object; `now` is in seconds since the epoch."""
    return _SIGNS[live["kind"]](live, now)


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


def _of_definition(live: Manifest, _: float) -> Iterator[Alive]:
    """Flux or Argo CD would restore the old definition."""
    mine = live["spec"]["group"] == GROUP and live["spec"]["names"]["kind"] in KINDS
    if mine and (owner := applier_of(live)):
        way = "take the definition out there without pruning it, and its label off it here"
        yield Alive(id_of(live).label, owner, way)


def _of_workload(live: Manifest, _: float) -> Iterator[Alive]:
    if live.get("spec", {}).get("replicas", 1) == 0:
        return
    template = live.get("spec", {}).get("template", {}).get("spec", {})
    if owner := _owner_of(template):
        at = live["metadata"]
        kind = live["kind"].lower()
        way = f"kubectl -n {at['namespace']} scale {kind} {at['name']} --replicas=0"
        if live["kind"] == "DaemonSet":
            way = f"kubectl -n {at['namespace']} delete daemonset {at['name']}"
        yield Alive(id_of(live).label, owner, way)


def _of_pod(live: Manifest, _: float) -> Iterator[Alive]:
    """A pod whose workload is gone or scaled down may still be terminating."""
    if (live.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return
    if (owner := _owner_of(live.get("spec", {}))) and not live["metadata"].get("ownerReferences"):
        at = live["metadata"]
        yield Alive(
            id_of(live).label, owner, f"kubectl -n {at['namespace']} delete pod {at['name']}"
        )
    elif owner and live["metadata"].get("deletionTimestamp"):
        yield Alive(id_of(live).label, owner, "wait until it has ended")


def _owner_of(pod: Mapping[str, Any]) -> str | None:
    """By the images of a pod. The engines that LLMKube starts use other vendors' images."""
    for container in pod.get("containers") or ():
        repository = str(container.get("image", "")).partition("@")[0].lower()
        for word, owner in OWNERS.items():
            if word in re.split(r"[/:-]", repository):
                return owner
    return None


def _of_lease(live: Manifest, now: float) -> Iterator[Alive]:
    spec = live.get("spec") or {}
    renewed = parse_timestamp(spec.get("renewTime"))
    if not spec.get("holderIdentity") or renewed is None or now - renewed > _ALIVE_S:
        return
    name = f"{live['metadata']['name']} {spec['holderIdentity']}".lower()
    for word, owner in OWNERS.items():
        if word in name:
            way = f"it is held by {spec['holderIdentity']}: end that, and wait 3 minutes"
            yield Alive(id_of(live).label, owner, way)


def _of_slice(live: Manifest, now: float) -> Iterator[Alive]:
    beat = parse_timestamp((live["metadata"].get("annotations") or {}).get(_HEARTBEAT))
    if beat is not None and now - beat <= _ALIVE_S:
        way = "end the agent on that machine (launchctl bootout), and wait 3 minutes"
        yield Alive(f"the agent behind {id_of(live).label}", "LLMKube", way)


_SIGNS: Mapping[str, Callable[[Manifest, float], Iterator[Alive]]] = {
    "CustomResourceDefinition": _of_definition,
    "Deployment": _of_workload,
    "StatefulSet": _of_workload,
    "DaemonSet": _of_workload,
    "Pod": _of_pod,
    "Lease": _of_lease,
    "EndpointSlice": _of_slice,
}


def _listed(api: ApiServer, kind: OwnedKind) -> Sequence[Manifest]:
    try:
        return api.list(kind).items
    except NotFound:
        return ()
