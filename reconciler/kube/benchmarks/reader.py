"""Reads the pods that serve or measure and the nodes with GPUs, only when something has changed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reconciler.api.nodelabels import DEFAULT_PREFIX
from reconciler.kube.client.errors import ClusterError
from reconciler.kube.kinds import SERVED_KINDS
from reconciler.kube.objects import MANAGED_BY_LABEL, MANAGER, Manifest
from reconciler.kube.render.labels import BENCHMARK, COMPONENT_LABEL, SERVER

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer

_GOOD_FOR_S = 300.0  # labels of nodes come without a change of ours
_PODS = f"{MANAGED_BY_LABEL}={MANAGER},{COMPONENT_LABEL} in ({SERVER},{BENCHMARK})"
_NODES = f"{DEFAULT_PREFIX}gpu.vendor"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PodsAndNodes:
    """Our pods that serve or measure, and the nodes that have a label of a GPU, by name."""

    pods: tuple[Manifest, ...] = ()
    nodes: Mapping[str, Manifest] = field(default_factory=dict)


NOTHING_READ = PodsAndNodes()


class PodsAndNodesReader:
    """One thread uses it."""

    def __init__(self, api: ApiServer, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._clock = api, clock
        self._known: tuple[float, tuple[object, ...], PodsAndNodes] | None = None

    def find(self, states: tuple[object, ...]) -> PodsAndNodes | None:
        """As they were when `states`, what stands for them, last changed, and not long ago. None:
        they cannot be read, and nothing follows from that."""
        now = self._clock()
        if self._known is not None:
            at, before, found = self._known
            if before == states and now - at < _GOOD_FOR_S:
                return found
        try:
            pods = tuple(self._api.list(SERVED_KINDS["", "Pod"], selector=_PODS).items)
            nodes = self._api.list(SERVED_KINDS["", "Node"], selector=_NODES).items
        except ClusterError as error:  # also without the right to: the pass goes on
            _log.debug("what could be measured is not known: %s", error)
            return None
        read = PodsAndNodes(pods, {str(node["metadata"]["name"]): node for node in nodes})
        self._known = now, states, read
        return read
