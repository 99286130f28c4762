"""The heartbeats of the agents of a cluster's nodes: their Leases, read in every pass."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.kube.endpoints.heartbeat import (
    LEASES_PATH,
    LeaseState,
    lease_name,
    lease_state,
)
from reconciler.kube.endpoints.slices import NODE_LABEL
from reconciler.kube.objects import Manifest
from reconciler.timestamps import parse_timestamp

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer


@dataclass(frozen=True, slots=True)
class AgentHeartbeat:
    """`renewed` is the last renewal as the agent wrote it; `at` is the same in seconds since the
    epoch, by our clock where we saw it change. None: never, or it cannot be parsed."""

    state: LeaseState
    renewed: str = ""
    at: float | None = None


class Heartbeats:
    """Used by one thread."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._renewals: dict[str, tuple[str, float | None]] = {}

    def read(self, nodes: Collection[str]) -> Mapping[str, AgentHeartbeat]:
        """The heartbeats of the nodes that have a Lease. Raises ClusterError."""
        if not nodes:
            return {}
        listed = self._api.raw("GET", LEASES_PATH, query={"labelSelector": NODE_LABEL})["items"]
        leases = {lease["metadata"]["name"]: lease for lease in listed}
        by_node = {node: leases.get(lease_name(node)) for node in nodes}
        return {
            node: self._beat(node, lease) for node, lease in by_node.items() if lease is not None
        }

    def _beat(self, node: str, lease: Manifest) -> AgentHeartbeat:
        renew_time, now = str((lease.get("spec") or {}).get("renewTime") or ""), time.time()
        before, seen_at = self._renewals.get(node, ("", None))
        if before and before != renew_time:
            seen_at = now
        self._renewals[node] = (renew_time, seen_at)
        at = parse_timestamp(renew_time) if seen_at is None else seen_at
        return AgentHeartbeat(lease_state(lease, now, seen_at), renew_time, at)
