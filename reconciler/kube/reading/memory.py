"""What was seen of a fleet's objects in a cluster, kept there: a reconciler that starts anew must
know what may not go missing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.kube.objects import (
    MANAGED_BY_LABEL,
    MANAGER,
    SYSTEM_NAMESPACE,
    ObjectId,
)

if TYPE_CHECKING:
    from reconciler.kube.apiserver.client import ApiServer


@dataclass(frozen=True, slots=True)
class Known:
    """A fleet's identity in a cluster: the uids of its Fleet object and of the definitions (by
    their plural names), and the services (namespace/name) that it had."""

    fleet: str
    fleet_uid: str
    definitions: Mapping[str, str]
    services: frozenset[str]

    def is_same_store(self, now: Known) -> bool:
        """Whether nothing was made anew, so that what is missing was removed."""
        return self.fleet_uid == now.fleet_uid and self.definitions == now.definitions


class Memory:
    """A ConfigMap beside the inventory. Written only when it would change."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._last: Known | None = None

    def read(self, fleet: str) -> Known | None:
        """What was followed last of that fleet; None: nothing yet. Raises ClusterError."""
        if self._last is None or self._last.fleet != fleet:
            self._last = _decoded(fleet, self._api.get(_oid(fleet)))
        return self._last

    def write(self, known: Known) -> None:
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
                "labels": {MANAGED_BY_LABEL: MANAGER},  # no member of the inventory
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


def _decoded(fleet: str, found: Mapping[str, object] | None) -> Known | None:
    """None for one that nobody of us wrote: then all is new."""
    data = found.get("data") if found else None
    if not isinstance(data, Mapping):
        return None
    try:
        definitions = json.loads(data["definitions"])
        services = frozenset(str(data["services"]).split())
        return Known(fleet, str(data["fleetUid"]), dict(definitions), services)
    except (KeyError, ValueError, TypeError):
        return None
