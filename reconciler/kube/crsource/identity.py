"""The identity of a fleet's objects in a cluster, stored there: a reconciler that restarts must
know which objects may not be missing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.api.plain_json import parse_json
from reconciler.kube.objects import (
    MANAGED_BY_LABEL,
    MANAGER,
    SYSTEM_NAMESPACE,
    ObjectId,
)

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer


@dataclass(frozen=True, slots=True)
class FleetIdentity:
    """A fleet's identity in a cluster: the uids of its Fleet object and of the definitions (by
    their plural names), and the services (namespace/name) that it had."""

    fleet: str
    fleet_uid: str
    definitions: Mapping[str, str]
    services: frozenset[str]

    def is_same_store(self, now: FleetIdentity) -> bool:
        """Whether nothing was recreated, so that missing objects were removed."""
        return self.fleet_uid == now.fleet_uid and self.definitions == now.definitions


class FleetMemory:
    """A ConfigMap beside the inventory, written only if it changes."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._last: FleetIdentity | None = None

    def read(self, fleet: str) -> FleetIdentity | None:
        """What was last followed of that fleet; None: nothing yet. Raises ClusterError."""
        if self._last is None or self._last.fleet != fleet:
            self._last = _decoded(fleet, self._api.get(_oid(fleet)))
        return self._last

    def write(self, known: FleetIdentity) -> None:
        """Raises ClusterError."""
        if known == self.read(known.fleet):
            return
        oid = _oid(known.fleet)
        manifest = {
            "apiVersion": "v1",
            "kind": oid.kind,
            "metadata": {
                "name": oid.name,
                "namespace": oid.namespace,
                "labels": {MANAGED_BY_LABEL: MANAGER},  # not a member of the inventory
            },
            "data": {
                "fleetUid": known.fleet_uid,
                "definitions": json.dumps(dict(known.definitions), sort_keys=True),
                "services": "\n".join(sorted(known.services)),
            },
        }
        self._api.apply(manifest, force=True)
        self._last = known


def _oid(fleet: str) -> ObjectId:
    return ObjectId("", "ConfigMap", SYSTEM_NAMESPACE, f"fleet-{fleet}-seen")


def _decoded(fleet: str, content: Mapping[str, object] | None) -> FleetIdentity | None:
    """None if it was not written by us: then everything is new."""
    data = content.get("data") if content else None
    if not isinstance(data, Mapping):
        return None
    try:
        definitions = parse_json(data["definitions"])
        services = frozenset(str(data["services"]).split())
        return FleetIdentity(fleet, str(data["fleetUid"]), dict(definitions), services)
    except (KeyError, ValueError, TypeError):
        return None
