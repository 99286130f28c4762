"""Keeps the endpoints of agent nodes in one cluster correct, where their agents do not."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.kube.client.errors import ClusterError
from reconciler.kube.endpoints.node_slices import NodeSlices
from reconciler.kube.endpoints.slices import stale_slices
from reconciler.kube.objects import (
    AGENT_MANAGER,
    MANAGED_BY_LABEL,
    OWNED_KINDS,
    Manifest,
    ObjectId,
    id_of,
)

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer

_BY_AGENTS = f"{MANAGED_BY_LABEL}={AGENT_MANAGER}"
_SLICE = OWNED_KINDS["discovery.k8s.io", "EndpointSlice"]
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SliceTakeover:
    """Changes that are in no plan, as the fleet has not changed. `take` are slices whose agent
    stopped writing them: they become ours. `silent` are nodes in an unknown state."""

    take: tuple[Manifest, ...] = ()
    silent: frozenset[str] = frozenset()

    @classmethod
    def of(cls, slices: NodeSlices, strangers: Mapping[ObjectId, Manifest]) -> SliceTakeover:
        """`strangers` are objects under our names that are not ours."""
        take = (m for m in slices.wanted if is_by_agent(strangers.get(id_of(m))))
        return cls(tuple(take), slices.silent)

    def write(self, api: ApiServer) -> None:
        """Failures are retried in the next pass."""
        try:
            for manifest in self.take:
                api.apply(manifest, force=True)
            if self.silent:
                live = api.list(_SLICE, selector=_BY_AGENTS).items
                for manifest in stale_slices(live, self.silent):
                    api.replace(manifest)
        except ClusterError as error:
            _log.warning("cluster %s: endpoints of nodes: %s", api.name, error)


def is_by_agent(live: Manifest | None) -> bool:
    """Whether an agent wrote an object."""
    labels = (live["metadata"].get("labels") or {}) if live else {}
    return labels.get(MANAGED_BY_LABEL) == AGENT_MANAGER
