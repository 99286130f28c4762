"""The nodes beside one cluster, whose agents say there what they run: looked at with every pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from reconciler.kube.packed import Objects
from reconciler.kube.publishing.heartbeats import Beat, Heartbeats
from reconciler.kube.publishing.node_slices import published_nodes
from reconciler.kube.reading.nodes import Entries, agents_near, entries_by_node, heard, node_id

if TYPE_CHECKING:
    from reconciler.agents.nodes import Heard
    from reconciler.api.meta import ObjectRef
    from reconciler.desired import Desired
    from reconciler.kube.apiserver.client import ApiServer
    from reconciler.plan import Source


class Nearby:
    """One thread uses it: look, then ask. `beats` are the heartbeats of the last look."""

    def __init__(self, api: ApiServer) -> None:
        self.beats: Mapping[str, Beat] = {}
        self._cluster = api.name
        self._heartbeats = Heartbeats(api)
        self._nodes: frozenset[str] = frozenset()
        self._documents = Objects({})
        self._stood: Mapping[ObjectRef, Source] = {}
        self._entries: Mapping[str, Entries] | None = None  # None: not read since the last look

    def look(self, desired: Desired, documents: Objects, stood: Mapping[ObjectRef, Source]) -> None:
        """`stood`: where each service was declared when it was applied last. Raises
        ClusterError."""
        self._documents, self._stood, self._entries = documents, stood, None
        self._nodes = agents_near(desired, documents.keys())
        self._nodes |= frozenset(published_nodes(desired, self._cluster))
        self.beats = self._heartbeats.look(self._nodes)

    def heard(self, node: str) -> Heard | None:
        """What is known here of a node whose agent cannot be asked; None: it is none of this
        cluster's."""
        if node not in self._nodes:
            return None
        if self._entries is None:
            services = (oid for oid in self._documents if oid.kind == "InferenceService")
            self._entries = entries_by_node(self._documents[oid] for oid in services)
        document = self._documents.get(node_id(node))
        return heard(document, self._entries.get(node, {}), self.beats.get(node), self._stood)
