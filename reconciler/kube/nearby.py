"""The nodes beside one cluster, whose agents write there what they run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from reconciler.agents.nodes import AgentReport
from reconciler.api.fleetnode import FleetNode
from reconciler.kube.crsource.nodes import Entries, agents_near, entries_by_node, heard, node_id
from reconciler.kube.endpoints.heartbeats import AgentHeartbeat, Heartbeats
from reconciler.kube.endpoints.node_slices import published_nodes
from reconciler.kube.object_set import ObjectSet

if TYPE_CHECKING:
    from reconciler.api.meta import ObjectRef
    from reconciler.core.observation import Location
    from reconciler.loop.desired import Desired


@dataclass(frozen=True)
class AgentsNearby:
    """What one look at a cluster tells of its agent nodes. `heartbeats` by node; `documents` are
    the fleet's objects there; `stood` is where each service was declared when it was applied;
    `not_installed`: which of the fleet's kinds it does not know, where some are missing."""

    nodes: frozenset[str]
    heartbeats: Mapping[str, AgentHeartbeat]
    documents: ObjectSet
    stood: Mapping[ObjectRef, Location]
    not_installed: str = ""

    def report(self, node: str) -> AgentReport | None:
        """What is known here of a node whose agent cannot be asked; None: it is none of this
        cluster's."""
        if node not in self.nodes:
            return None
        beat = self.heartbeats.get(node)
        if self.not_installed and beat is not None:
            why = f"its agent cannot say there what runs: {self.not_installed}"
            return AgentReport(None, why, beat.at)
        document = self.documents.get(node_id(node))
        return heard(document, self._entries.get(node, {}), beat, self.stood)

    @cached_property
    def _entries(self) -> Mapping[str, Entries]:
        services = (oid for oid in self.documents if oid.kind == "InferenceService")
        return entries_by_node(self.documents[oid] for oid in services)


def agents_nearby(
    heartbeats: Heartbeats,
    cluster: str,
    desired: Desired,
    documents: ObjectSet,
    stood: Mapping[ObjectRef, Location],
    not_installed: str = "",
) -> AgentsNearby:
    """Look at their heartbeats. Where a kind is not installed, no document says which nodes are
    near: their Leases do. Raises ClusterError."""
    nodes = agents_near(desired, documents.keys())
    nodes |= frozenset(published_nodes(desired, cluster))
    if not_installed:
        agents = (node for node in desired.fleet.all(FleetNode) if node.spec.agent is not None)
        beats = heartbeats.read({node.metadata.name for node in agents})
        return AgentsNearby(nodes | beats.keys(), beats, documents, stood, not_installed)
    return AgentsNearby(nodes, heartbeats.read(nodes), documents, stood)
