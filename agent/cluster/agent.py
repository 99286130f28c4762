"""A node beside a cluster, wired: its source, what it publishes there, and its heartbeat."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.cluster.heartbeat import Heartbeat
from agent.cluster.outage import Outage
from agent.cluster.owner_uids import OwnerUidReader
from agent.cluster.publishing import Publisher
from agent.cluster.source import FollowedCluster, Follows, StandAlone, follow_reconciler
from agent.machine.probe import probe
from reconciler.api.kinds import KINDS
from reconciler.api.meta import API_VERSION, GROUP
from reconciler.kube.client.access import open_cluster
from reconciler.kube.informer.cache import InformerCache
from reconciler.kube.objects import AGENT_MANAGER, OWNED_KINDS, Manifest

if TYPE_CHECKING:
    from agent.node.node import Node
    from agent.node.settings import Settings
    from agent.server.board import StateBoard
    from reconciler.kube.client.api import ApiServer
    from reconciler.loop import Wake

_KINDS = tuple(KINDS)


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Which cluster, and the node's settings there. `standalone`: no reconciler runs in it."""

    node: str
    kubeconfig: Path | None = None
    context: str | None = None
    standalone: bool = False


class ClusterAgent:
    """One cluster for the life of this process."""

    def __init__(
        self, cluster: ClusterSettings, settings: Settings, wake: Wake, *, withdraws: bool
    ) -> None:
        """`wake` learns of changes in the cluster. `withdraws`: services stop when this process
        ends. Raises AccessError."""
        self._cluster, self._settings, self._withdraws = cluster, settings, withdraws
        name = cluster.context or "default"
        self._api: ApiServer = open_cluster(name, cluster.context, kubeconfig=cluster.kubeconfig)
        self._cache = InformerCache(
            self._api,
            [OWNED_KINDS[GROUP, kind] for kind in _KINDS],
            "",
            wake.fetch,
            slim=lambda context: slim(context, cluster.node),
            namespace=settings.namespace or "",
        )
        self.source = FollowedCluster(
            f"cluster://{name}",
            self._cache,
            self._follows(),
            settings.root / "desired" / "cluster.json",
        )

    @contextlib.contextmanager
    def beside(self, node: Node, board: StateBoard) -> Iterator[None]:
        """Publish the node and renew its Lease meanwhile."""
        outage, manager = Outage(self._api.name), f"{AGENT_MANAGER}-{node.name}"[:128]
        publisher = Publisher(
            self._api,
            node,
            board,
            self._cache.objects,
            outage,
            manager=manager,
            services=self._cluster.standalone,
            withdraws=self._withdraws,
        )
        heartbeat = Heartbeat(self._api, node.name, manager, outage)
        publisher.start()
        heartbeat.start()
        try:
            yield
        finally:
            heartbeat.close()
            publisher.close()
            self.source.close()
            self._api.close()

    def _follows(self) -> Follows:
        node = self._cluster.node
        if not self._cluster.standalone:
            return follow_reconciler(node, self._settings.namespace)
        return StandAlone(_stand_in(node, self._settings), OwnerUidReader(self._api))


def _stand_in(node: str, settings: Settings) -> Manifest:
    """The FleetNode of a machine that is not declared: its hardware, and the address under which
    its services are reachable."""
    agent: dict[str, Any] = {}
    if settings.host_ip is not None:
        key = settings.api_key_file is not None
        agent = {"hostIP": settings.host_ip, "expose": "key" if key else "open"}
    hardware = probe().model_dump(by_alias=True, mode="json", exclude_none=True)
    return {
        "apiVersion": API_VERSION,
        "kind": "FleetNode",
        "metadata": {"name": node},
        "spec": {"agent": agent, "hardware": hardware},
    }


def slim(live: dict[str, Any], node: str) -> Manifest:
    """Without the notes of the server and of kubectl, most of a small object's bytes, and without
    what other nodes report: what they write must not make every agent look again."""
    metadata, status = live["metadata"], live.get("status") or {}
    if live["kind"] == "InferenceService":
        entries = status.get("instances") or ()
        live["status"] = {"instances": [e for e in entries if e.get("node") == node]}
    elif (live["kind"], metadata["name"]) != ("FleetNode", node):
        live.pop("status", None)
    metadata.pop("resourceVersion", None)
    metadata.pop("managedFields", None)
    (metadata.get("annotations") or {}).pop(
        "kubectl.kubernetes.io/last-applied-configuration", None
    )
    return live
