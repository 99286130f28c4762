"""The surroundings of a cluster's services: the uids of their definition and namespaces."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from agent.cluster.following import OwnerUids
from reconciler.api.meta import GROUP
from reconciler.kube.client.errors import Denied
from reconciler.kube.objects import Manifest, ObjectId

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer

_DEFINITION = ObjectId(
    "apiextensions.k8s.io", "CustomResourceDefinition", "", f"inferenceservices.{GROUP}"
)
_log = logging.getLogger(__name__)


class OwnerUidReader:
    """Queries the API server. Without permission nothing is known, and no service is dropped."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._has_logged = False

    def __call__(self, services: Iterable[ObjectId]) -> Mapping[ObjectId, OwnerUids]:
        """Raises ClusterError if the server does not respond."""
        services = tuple(services)
        definition = self._uid(_DEFINITION)
        names = {oid.namespace for oid in services}
        within = {name: self._uid(ObjectId("", "Namespace", "", name)) for name in names}
        return {oid: OwnerUids(definition, within[oid.namespace]) for oid in services}

    def _uid(self, oid: ObjectId) -> str | None:
        try:
            live = self._api.get(oid)
        except Denied as error:
            if not self._has_logged:
                self._has_logged = True
                _log.warning(
                    "%s: a service that is removed from the cluster goes on here until the agent"
                    " may get customresourcedefinitions and namespaces",
                    error,
                )
            return None
        return None if live is None or _is_going(live) else str(live["metadata"]["uid"])


def _is_going(live: Manifest) -> bool:
    """Being deleted, or a definition that is not served yet."""
    if live["metadata"].get("deletionTimestamp"):
        return True
    if live["kind"] != "CustomResourceDefinition":
        return False
    conditions = (live.get("status") or {}).get("conditions") or ()
    return not any(c.get("type") == "Established" and c.get("status") == "True" for c in conditions)
