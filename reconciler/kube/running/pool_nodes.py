"""Whether a cluster has any node that a pool selects: pods that select none wait for ever, and only
the scheduler says so, once they are there."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from reconciler.api.problem import Finding
from reconciler.kube.client.errors import ClusterError, Unreachable
from reconciler.kube.kinds import SERVED_KINDS
from reconciler.placement.pods import cluster_of

if TYPE_CHECKING:
    from reconciler.api.fleetnode import FleetNode
    from reconciler.fleet.workload import Workload
    from reconciler.kube.client.api import ApiServer

_GOOD_FOR_S = 60.0  # passes may follow each other within a second
_NODES = SERVED_KINDS["", "Node"]

log = logging.getLogger(__name__)


class PoolNodes:
    """One thread uses it. One request for each selector, and none again for a minute."""

    def __init__(self, api: ApiServer, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._clock = api, clock
        self._known: dict[str, tuple[float, bool]] = {}

    def lacking(self, workloads: Iterable[Workload]) -> str:
        """Which pools of these select no node; empty: none, or Nodes may not be listed."""
        asked = {
            w.node: _selector(w.pool.node_selector)
            for w in workloads
            if w.pool is not None and w.pool.node_selector
        }
        try:
            reasons = [
                f"no node there has what {node} selects ({selector})"
                for node, selector in sorted(asked.items())
                if not self._has(selector)
            ]
        except ClusterError as error:  # also without the right to: the pass goes on
            log.debug("whether pools select any node is not known: %s", error)
            return ""
        return "; ".join(reasons) + ": pods wait until one does" if reasons else ""

    def _has(self, selector: str) -> bool:
        now = self._clock()
        at, has = self._known.get(selector, (now - _GOOD_FOR_S, False))
        if now - at >= _GOOD_FOR_S:
            has = _has_any(self._api, selector)
            self._known[selector] = now, has
        return has


def selecting_none(api: ApiServer, nodes: Iterable[FleetNode]) -> Iterator[Finding]:
    """Each pool of that cluster whose selector no node there has, used or not. Raises
    ClusterError, also where Nodes may not be listed."""
    for node in nodes:
        pool = node.spec.kubernetes
        if pool is None or not pool.node_selector or cluster_of(node) != api.name:
            continue
        selector = _selector(pool.node_selector)
        if not _has_any(api, selector):
            message = f"no node of cluster {api.name} has {selector}: pods wait until one does"
            yield Finding("NoNodeSelected", node.ref, "spec.kubernetes.nodeSelector", message)


def _has_any(api: ApiServer, selector: str) -> bool:
    query = {"labelSelector": selector, "limit": "1"}
    answer = api.raw("GET", _NODES.path(), query=query)
    items = answer.get("items") if isinstance(answer, dict) else None
    if not isinstance(items, list):  # a login page, for example
        raise Unreachable(f"cluster {api.name} answers with something else than a list of Nodes")
    return bool(items)


def _selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={text}" for key, text in sorted(labels.items()))
