"""A node beside a cluster, wired: its source, what it publishes there, and its heartbeat."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.cluster.grounds import GroundsReader
from agent.cluster.heartbeat import Heartbeat
from agent.cluster.outage import Outage
from agent.cluster.publishing import Publisher
from agent.cluster.source import ClusterSource, Follows, StandAlone, follow_reconciler
from agent.heap import few_arenas
from agent.machine.probe import probe
from reconciler.api.meta import API_VERSION, GROUP
from reconciler.kube.apiserver.access import open_cluster
from reconciler.kube.objects import AGENT_MANAGER, OWNED_KINDS, Manifest
from reconciler.kube.watches.watching import Mirror

if TYPE_CHECKING:
    from agent.node import Node
    from agent.server.board import StateBoard
    from agent.settings import Settings
    from reconciler.kube.apiserver.client import ApiServer

_KINDS = ("Fleet", "FleetNode", "Model", "InferenceService")


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Which cluster, and what this node is there. `standalone`: no reconciler is in it."""

    node: str
    kubeconfig: Path | None = None
    context: str | None = None
    standalone: bool = False


class Room:
    """One cluster for the life of this process."""

    def __init__(self, cluster: ClusterSettings, settings: Settings, *, withdraws: bool) -> None:
        """`withdraws`: what runs ends with us. Raises AccessError."""
        few_arenas()  # a watch of each kind has a thread
        self._cluster, self._settings, self._withdraws = cluster, settings, withdraws
        name = cluster.context or "default"
        self._api: ApiServer = open_cluster(name, cluster.context, kubeconfig=cluster.kubeconfig)
        self._mirror = Mirror(
            self._api,
            [OWNED_KINDS[GROUP, kind] for kind in _KINDS],
            "",
            lambda: self.source.changed(),
            slim=_slim,
            namespace=settings.namespace or "",
        )
        self.source = ClusterSource(
            f"cluster://{name}",
            self._mirror,
            self._follows(),
            settings.root / "desired" / "cluster.json",
        )

    @contextlib.contextmanager
    def beside(self, node: Node, board: StateBoard) -> Iterator[None]:
        """Publish and be heard of meanwhile."""
        outage, manager = Outage(self._api.name), f"{AGENT_MANAGER}-{node.name}"[:128]
        self.source.wakes = node.loop.wake.fetch
        publisher = Publisher(
            self._api,
            node,
            board,
            self._mirror.objects,
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
        return StandAlone(_stand_in(node, self._settings), GroundsReader(self._api))


def _stand_in(node: str, settings: Settings) -> Manifest:
    """The FleetNode of a machine that nobody declared: what it is, and that whoever said its
    address wants its services to be reached there."""
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


def _slim(found: dict[str, Any]) -> Manifest:
    """The notes of the server and of kubectl are most of a small object's bytes."""
    metadata = found["metadata"]
    metadata.pop("managedFields", None)
    (metadata.get("annotations") or {}).pop(
        "kubectl.kubernetes.io/last-applied-configuration", None
    )
    return found
