"""Keeps the endpoints of agent nodes in one cluster true, where their agents do not."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from reconciler.kube.apiserver.errors import ClusterError
from reconciler.kube.objects import (
    AGENT_MANAGER,
    MANAGED_BY_LABEL,
    OWNED_KINDS,
    Manifest,
    ObjectId,
    id_of,
)
from reconciler.kube.publishing.heartbeat import LEASES_PATH, LeaseState, lease_name, lease_state
from reconciler.kube.publishing.node_slices import NodeSlices, node_slices, published_nodes
from reconciler.kube.publishing.slices import NODE_LABEL, stale_slices

if TYPE_CHECKING:
    from reconciler.desired import Desired
    from reconciler.kube.apiserver.client import ApiServer
    from reconciler.plan import Observation

_BY_AGENTS = f"{MANAGED_BY_LABEL}={AGENT_MANAGER}"
_SLICE = OWNED_KINDS["discovery.k8s.io", "EndpointSlice"]
_log = logging.getLogger(__name__)


class Upkeep:
    """One thread uses it: `look`, then `taken`, then `carry_out`."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._renewals: dict[str, tuple[str, float | None]] = {}
        self._take: tuple[Manifest, ...] = ()
        self._silent: frozenset[str] = frozenset()

    def look(
        self,
        desired: Desired,
        fleet: str,
        observed: Observation,
        live: Mapping[ObjectId, Manifest],
    ) -> NodeSlices:
        """The slices that are ours to write now. Raises ClusterError."""
        nodes = published_nodes(desired, self._api.name)
        self._take, self._silent = (), frozenset()
        if not nodes:
            return NodeSlices()
        found = node_slices(nodes, fleet, observed, self._leases(nodes), live)
        self._silent = found.silent
        return found

    def taken(self, wanted: Iterable[Manifest], strangers: Mapping[ObjectId, Manifest]) -> None:
        """Slices that an agent wrote which stopped doing so: they become ours."""
        self._take = tuple(m for m in wanted if is_by_agent(strangers.get(id_of(m))))

    def carry_out(self) -> None:
        """What no plan shows, as the fleet has not changed. What fails is tried with the next
        pass."""
        try:
            for manifest in self._take:
                self._api.apply(manifest, force=True)
            if self._silent:
                live = self._api.list(_SLICE, selector=_BY_AGENTS).items
                for manifest in stale_slices(live, self._silent):
                    self._api.replace(manifest)
        except ClusterError as error:
            _log.warning("cluster %s: endpoints of nodes: %s", self._api.name, error)

    def _leases(self, nodes: Iterable[str]) -> Mapping[str, LeaseState]:
        listed = self._api.raw("GET", LEASES_PATH, query={"labelSelector": NODE_LABEL})["items"]
        leases = {lease["metadata"]["name"]: lease for lease in listed}
        return {
            node: lease_state(lease, time.time(), self._renewed_at(node, lease))
            for node in nodes
            if (lease := leases.get(lease_name(node))) is not None
        }

    def _renewed_at(self, node: str, lease: Manifest) -> float | None:
        """When we saw it renewed, by our clock; None: not yet, the agent's own clock counts."""
        said = str((lease.get("spec") or {}).get("renewTime", ""))
        before, at = self._renewals.get(node, ("", None))
        if before and before != said:
            at = time.time()
        self._renewals[node] = (said, at)
        return at


def is_by_agent(live: Manifest | None) -> bool:
    """Whether an agent wrote an object."""
    labels = (live["metadata"].get("labels") or {}) if live else {}
    return labels.get(MANAGED_BY_LABEL) == AGENT_MANAGER
