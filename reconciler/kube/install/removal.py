"""Removes an installation from a cluster, and lists what a fleet still has there."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.api.kinds import KIND_TABLE, KINDS
from reconciler.api.meta import GROUP
from reconciler.kube.client.errors import NotFound
from reconciler.kube.endpoints.slices import NODE_LABEL
from reconciler.kube.install import admission, rbac
from reconciler.kube.install.manifests import (
    Program,
    deployment,
    namespace,
    priority_classes,
    service,
)
from reconciler.kube.install.writer import (
    InstallResult,
    agent_objects,
    agents_of,
    delete,
    is_ours,
)
from reconciler.kube.kinds import LEASE
from reconciler.kube.objects import (
    AGENT_MANAGER,
    FLEET_LABEL,
    MANAGED_BY_LABEL,
    MANAGER,
    OWNED_KINDS,
    SYSTEM_NAMESPACE,
    Manifest,
    ObjectId,
    OwnedKind,
    id_of,
)

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer

_DEFINITION = OWNED_KINDS["apiextensions.k8s.io", "CustomResourceDefinition"]
_NAMESPACE = OWNED_KINDS["", "Namespace"]
_CONFIG = OWNED_KINDS["", "ConfigMap"]
# gone from a fleet's services, these are left
_IDLE = frozenset(kind.name for kind in KIND_TABLE.values() if not kind.runs)
_OF_FLEETS = f"{MANAGED_BY_LABEL}={MANAGER},{FLEET_LABEL}"
_OF_AGENTS = f"{MANAGED_BY_LABEL}={AGENT_MANAGER},{NODE_LABEL}"
_NOTES = f"{MANAGED_BY_LABEL} in ({MANAGER},{AGENT_MANAGER})"  # inventories and Leases


@dataclass(frozen=True, slots=True)
class Remains:
    """What a fleet still has in the cluster, in the order in which it may be deleted: each object,
    and its uid."""

    objects: tuple[ObjectId, ...]
    uids: tuple[str, ...]
    has_more: bool  # more than documents that we wrote and that nothing depends on

    @property
    def token(self) -> str:
        """A digest of exactly these objects."""
        text = "\n".join(sorted(self.uids))
        return f"remove-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def remaining(api: ApiServer) -> Remains:
    """The fleets' documents and everything created for them. Raises ClusterError."""
    rows = sorted(OWNED_KINDS.values(), key=lambda row: -row.stage)
    leftover = [live for row in rows if row != _DEFINITION for live in _of_fleets(api, row)]
    uids = tuple(str(live["metadata"]["uid"]) for live in leftover)
    return Remains(tuple(map(id_of, leftover)), uids, not all(map(_is_idle_document, leftover)))


def _is_idle_document(live: Manifest) -> bool:
    labels = live["metadata"].get("labels") or {}
    return live["kind"] in _IDLE and labels.get(MANAGED_BY_LABEL) == MANAGER


def remove_program(api: ApiServer) -> Iterator[tuple[ObjectId, InstallResult]]:
    """Remove the program, every agent's account, and all rights. Services keep running;
    definitions, priority classes and the inventory stay."""
    rights = (*admission.manifests(), *rbac.manifests(), rbac.agents_role())
    yield from delete(api, (id_of(deployment(Program(url=""))), id_of(service())))
    yield from delete(api, agent_objects(agents_of(api)))
    yield from delete(api, map(id_of, rights))


def remove_all(api: ApiServer, remains: Remains) -> Iterator[tuple[ObjectId, InstallResult]]:
    """The program first, so that it does not recreate what is deleted after it."""
    yield from remove_program(api)
    for oid, uid in zip(remains.objects, remains.uids, strict=True):
        api.delete(oid, uid=uid)
        yield oid, InstallResult.DELETED
    yield from delete(api, map(id_of, priority_classes()))
    yield from delete(api, [oid for oid in _definitions() if _is_our_definition(api, oid)])
    # in a namespace that we did not create they are removed one by one
    for row in (_CONFIG, LEASE):
        for live in _listed(api, row, _NOTES, SYSTEM_NAMESPACE):
            api.delete(id_of(live), uid=live["metadata"]["uid"])
            yield id_of(live), InstallResult.DELETED
    yield from delete(api, [id_of(namespace())])


def _of_fleets(api: ApiServer, row: OwnedKind) -> Iterator[Manifest]:
    """Objects of one kind. Deleting our definition deletes all its objects, whoever created
    them."""
    if row.group == GROUP:
        mine = _is_our_definition(api, _definition(row))
        yield from _listed(api, row, "" if mine else _OF_FLEETS)
        return
    selectors = [_OF_FLEETS, _OF_AGENTS] if row.namespaced else [_OF_FLEETS]
    for selector in selectors:
        for live in _listed(api, row, selector):
            elsewhere = live["metadata"].get("namespace") != SYSTEM_NAMESPACE and row != _NAMESPACE
            if elsewhere and not _goes_with_another(live):
                yield live


def _goes_with_another(live: Manifest) -> bool:
    """Whether a controller created it from a listed object, such as Kubernetes' slices of a
    Service."""
    owners = live["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") for owner in owners)


def _definitions() -> Iterator[ObjectId]:
    for kind in KINDS:
        yield _definition(OWNED_KINDS[GROUP, kind])


def _definition(row: OwnedKind) -> ObjectId:
    return ObjectId(_DEFINITION.group, _DEFINITION.kind, "", f"{row.plural}.{GROUP}")


def _is_our_definition(api: ApiServer, oid: ObjectId) -> bool:
    live = api.get(oid)
    return live is not None and is_ours(live)


def _listed(
    api: ApiServer, row: OwnedKind, selector: str, namespace: str = ""
) -> tuple[Manifest, ...]:
    try:
        return tuple(api.list(row, selector=selector, namespace=namespace).items)
    except NotFound:
        return ()
