"""Keeps the endpoints of agent nodes in one cluster true, where their agents do not."""

from __future__ import annotations

import logging
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
from reconciler.kube.publishing.heartbeats import Beat
from reconciler.kube.publishing.node_slices import NodeSlices, node_slices, published_nodes
from reconciler.kube.publishing.slices import stale_slices

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
        self._take: tuple[Manifest, ...] = ()
        self._silent: frozenset[str] = frozenset()

    def look(
        self,
        desired: Desired,
        fleet: str,
        observed: Observation,
        live: Mapping[ObjectId, Manifest],
        beats: Mapping[str, Beat],
    ) -> NodeSlices:
        """The slices that are ours to write now. `beats` are those of the nodes' agents."""
        nodes = published_nodes(desired, self._api.name)
        self._take, self._silent = (), frozenset()
        if not nodes:
            return NodeSlices()
        leases = {node: beat.state for node, beat in beats.items()}
        found = node_slices(nodes, fleet, observed, leases, live)
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


def is_by_agent(live: Manifest | None) -> bool:
    """Whether an agent wrote an object."""
    labels = (live["metadata"].get("labels") or {}) if live else {}
    return labels.get(MANAGED_BY_LABEL) == AGENT_MANAGER
