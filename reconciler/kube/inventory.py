"""The objects of a fleet in a cluster: labels on each, and an ApplySet parent that names the set.

The parent is a ConfigMap as in KEP-3659, so that other tools can tell whose the objects are. Its
identity depends on the Fleet's name alone: moving the repository changes nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from reconciler.api.meta import ObjectRef
from reconciler.api.plain_json import parse_json
from reconciler.core.observation import Location
from reconciler.kube.client.errors import ClusterError
from reconciler.kube.objects import (
    FLEET_LABEL,
    MANAGED_BY_LABEL,
    MANAGER,
    OWNED_KINDS,
    PART_OF_LABEL,
    SERVICE_LABEL,
    SYSTEM_NAMESPACE,
    Manifest,
    ObjectId,
)
from reconciler.llmkube.written import owner_of
from reconciler.source.history import NotedRevision, SourcePlace

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer

ID_LABEL = "applyset.kubernetes.io/id"
TOOLING_ANNOTATION = "applyset.kubernetes.io/tooling"
KINDS_ANNOTATION = "applyset.kubernetes.io/contains-group-kinds"
NAMESPACES_ANNOTATION = "applyset.kubernetes.io/additional-namespaces"
_MOST_SOURCES = 700_000  # characters; a whole object may have 1.5 MB
_FOLLOWED = "followed"
_PLACE = ("location", "ref", "fleet", "root")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_TOOL = f"{MANAGER}/v1"  # NAME/VERSION: other tools must leave the set alone


class ForeignSet(ClusterError):
    """The set's parent belongs to another tool."""


def set_id(fleet: str) -> str:
    """The ApplySet's id: `applyset-<base64url(sha256("NAME.NAMESPACE.KIND.GROUP"))>-v1`."""
    identity = f"{parent_name(fleet)}.{SYSTEM_NAMESPACE}.ConfigMap."
    hashed = hashlib.sha256(identity.encode()).digest()
    return f"applyset-{base64.urlsafe_b64encode(hashed).decode().rstrip('=')}-v1"


def parent_name(fleet: str) -> str:
    return f"fleet-{fleet}"


def parent_id(fleet: str) -> ObjectId:
    return ObjectId("", "ConfigMap", SYSTEM_NAMESPACE, parent_name(fleet))


def selector(fleet: str) -> str:
    """The label selector of everything that a fleet has in a cluster."""
    return f"{PART_OF_LABEL}={set_id(fleet)}"


def labelled(manifest: Manifest, fleet: str, service: str | None = None) -> dict[str, Any]:
    """A manifest with the labels of the fleet's set; `service`: the name of the service that it is
    for."""
    own = {MANAGED_BY_LABEL: MANAGER, FLEET_LABEL: fleet, PART_OF_LABEL: set_id(fleet)}
    own |= {SERVICE_LABEL: service} if service else {}
    metadata = manifest["metadata"]
    labels = {**(metadata.get("labels") or {}), **own}
    return {**manifest, "metadata": {**metadata, "labels": labels}}


def is_ours(live: Manifest, fleet: str) -> bool:
    """Whether an object is this fleet's: by its labels, and as a member of its set or applied by
    us. The labels alone do not prove it: controllers copy them (a Service's to its EndpointSlices),
    and so do rendered files that another program applies. What was adopted still has a
    reference to its service."""
    metadata = live["metadata"]
    labels = metadata.get("labels") or {}
    writers = {entry.get("manager") for entry in metadata.get("managedFields") or ()}
    is_member = labels.get(PART_OF_LABEL) == set_id(fleet) or MANAGER in writers
    owners = metadata.get("ownerReferences") or ()
    is_made = any(owner.get("controller") for owner in owners) and owner_of(live) is None
    mine = labels.get(MANAGED_BY_LABEL) == MANAGER and labels.get(FLEET_LABEL) == fleet
    return mine and is_member and not is_made


def fleet_of(live: Manifest) -> str | None:
    """The fleet in an object's labels."""
    fleet = (live["metadata"].get("labels") or {}).get(FLEET_LABEL)
    return str(fleet) if fleet else None


def parent(
    fleet: str,
    members: Iterable[ObjectId],
    revision: str | None,
    sources: Mapping[ObjectRef, Location] = MappingProxyType({}),
    defaults: Mapping[str, str] = MappingProxyType({}),
    followed: NotedRevision | None = None,
) -> dict[str, Any]:
    """The ApplySet's parent: the kinds and namespaces of its members, the revision applied last
    (None: none yet), where in it each service and document is declared, which defaults of the
    process that applied it decided, and the commit that is followed."""
    stated = {"defaults": json.dumps(dict(sorted(defaults.items())))} if defaults else {}
    applied = {"revision": revision, "sources": _packed(sources), **stated} if revision else {}
    noted = {_FOLLOWED: _noted(followed)} if followed else {}
    refs = tuple(members)
    kinds = sorted({f"{oid.kind}.{oid.group}" if oid.group else oid.kind for oid in refs})
    spaces = sorted({oid.namespace for oid in refs} - {"", SYSTEM_NAMESPACE})
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": parent_name(fleet),
            "namespace": SYSTEM_NAMESPACE,
            "labels": {ID_LABEL: set_id(fleet), FLEET_LABEL: fleet, MANAGED_BY_LABEL: MANAGER},
            "annotations": {
                TOOLING_ANNOTATION: _TOOL,
                KINDS_ANNOTATION: ",".join(kinds),
                NAMESPACES_ANNOTATION: ",".join(spaces),
            },
        },
        "data": {**applied, **noted},
    }


def revision_of(live: Manifest | None) -> str | None:
    """The revision applied last, from a live parent."""
    return None if live is None else (live.get("data") or {}).get("revision")


def sources_of(live: Manifest | None) -> dict[ObjectRef, Location]:
    """Where each service and document was declared in the revision applied last."""
    rows = _mapping(live, "sources").items()
    return dict(filter(None, (_source(str(name), str(place)) for name, place in rows)))


def defaults_of(live: Manifest | None) -> dict[str, str]:
    """The defaults that decided when the revision was applied, by their variables."""
    return {str(name): str(value) for name, value in _mapping(live, "defaults").items()}


def followed_of(live: Manifest | None) -> NotedRevision | None:
    """The commit that is followed, from a live parent; None: it names none. Only what can be a
    commit is taken: git is asked for it."""
    content = _mapping(live, _FOLLOWED)
    if live is None or not _COMMIT.fullmatch(str(content.get("revision"))):
        return None
    place = SourcePlace(**{name: str(content.get(name, "")) for name in _PLACE})
    at = content.get("notedAt")
    noted_at = float(at) if isinstance(at, int | float) else 0.0
    return place.noted(fleet_of(live) or "", str(content["revision"]), noted_at)


def noted_revision(api: ApiServer, fleet: str) -> NotedRevision | None:
    """What is noted in a cluster of the fleet that a source is (`checkout.fleet_of`). Raises
    ClusterError."""
    kind = OWNED_KINDS["", "ConfigMap"]
    chosen = f"{ID_LABEL},{MANAGED_BY_LABEL}={MANAGER}"
    parents = api.list(kind, selector=chosen, namespace=SYSTEM_NAMESPACE).items
    noted = (followed_of(live) for live in parents if live["metadata"]["name"] == _own_name(live))
    return max(
        (each for each in noted if each and each.fleet == fleet),
        key=lambda each: each.noted_at,
        default=None,
    )


def _own_name(live: Manifest) -> str:
    return parent_name(fleet_of(live) or "")


def _noted(followed: NotedRevision) -> str:
    content = {name: getattr(followed, name) for name in _PLACE}
    content |= {"revision": followed.revision, "notedAt": round(followed.noted_at)}
    return json.dumps(content, sort_keys=True)


def _mapping(live: Manifest | None, key: str) -> Mapping[str, Any]:
    """What a live parent keeps as JSON; empty if it is absent or malformed."""
    text = "" if live is None else (live.get("data") or {}).get(key, "")
    try:
        read = parse_json(text or "{}")
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}


def _source(name: str, place: str) -> tuple[ObjectRef, Location] | None:
    """Parse `Kind/namespace/name` and FILE:LINE; None if malformed."""
    kind, *parts = name.split("/")
    file, _, line = place.rpartition(":")
    if not 1 <= len(parts) <= 2 or not file or not line.isdecimal():
        return None
    namespace = parts[0] if len(parts) == 2 else ""
    return ObjectRef(kind, namespace, parts[-1]), Location(file, int(line), None)


def _packed(sources: Mapping[ObjectRef, Location]) -> str:
    """Where each is declared, as JSON; empty if it would exceed the size of an object: it is only
    informative."""
    rows = {str(ref): f"{source.file}:{source.line}" for ref, source in sorted(sources.items())}
    text = json.dumps(rows, separators=(",", ":"))
    return text if len(text) <= _MOST_SOURCES else "{}"


def check_parent(live: Manifest | None, fleet: str) -> None:
    """Raises ForeignSet if another object has the parent's name."""
    if live is None:
        return
    metadata = live["metadata"]
    tool = (metadata.get("annotations") or {}).get(TOOLING_ANNOTATION)
    name = f"ConfigMap {SYSTEM_NAMESPACE}/{parent_name(fleet)}"
    if tool is None or tool.partition("/")[0] != MANAGER:
        whose = f"is the inventory of {tool}" if tool else "is not an inventory of fleet-reconciler"
        raise ForeignSet(f"{name} {whose}; rename the Fleet, or delete it if nothing needs it")
    identity = (metadata.get("labels") or {}).get(ID_LABEL)
    if identity != set_id(fleet):
        raise ForeignSet(f"{name} names the set {identity}, and this fleet's is {set_id(fleet)}")


def write_parent(
    api: ApiServer,
    fleet: str,
    live: Manifest | None,
    members: Iterable[ObjectId],
    revision: str | None,
    sources: Mapping[ObjectRef, Location] = MappingProxyType({}),
    defaults: Mapping[str, str] = MappingProxyType({}),
    followed: NotedRevision | None = None,
) -> Manifest:
    """Write the parent, without a call if nothing changes. Before members are written, `members`
    are the previous and the next ones, so that none is ever lost from the set."""
    check_parent(live, fleet)
    wanted = parent(fleet, members, revision, sources, defaults, followed)
    if live is not None and _says(live, wanted):
        return live
    return api.apply(wanted)


def _says(live: Manifest, wanted: Mapping[str, Any]) -> bool:
    def written(manifest: Mapping[str, Any]) -> tuple[Any, ...]:
        metadata = manifest["metadata"]
        labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
        names = (KINDS_ANNOTATION, NAMESPACES_ANNOTATION, TOOLING_ANNOTATION)
        return (*(annotations.get(name) for name in names), labels, manifest.get("data") or {})

    return written(live) == written(wanted)
