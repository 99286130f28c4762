"""Reads the pods that serve or measure and the nodes with GPUs, only when something has changed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reconciler.api.nodelabels import DEFAULT_PREFIX
from reconciler.kube.client.errors import ClusterError
from reconciler.kube.kinds import SERVED_KINDS
from reconciler.kube.objects import MANAGED_BY_LABEL, MANAGER, Manifest
from reconciler.kube.render.labels import BENCHMARK, COMPONENT_LABEL, SERVER

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer

_GOOD_FOR_S = 300.0  # labels of nodes come without a change of ours
_PAUSE_PER_READ = 20.0  # while services roll out their pods are read a twentieth of the time
_PODS = f"{MANAGED_BY_LABEL}={MANAGER},{COMPONENT_LABEL} in ({SERVER},{BENCHMARK})"
_NODES = f"{DEFAULT_PREFIX}gpu.vendor"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PodsAndNodes:
    """Our pods that serve or measure, and the nodes that have a label of a GPU, by name."""

    pods: tuple[Manifest, ...] = ()
    nodes: Mapping[str, Manifest] = field(default_factory=dict)


class PodsAndNodesReader:
    """One thread uses it."""

    def __init__(self, api: ApiServer, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._clock = api, clock
        self._known: _LastRead | None = None

    def find(
        self, serving: tuple[object, ...], measuring: tuple[object, ...]
    ) -> PodsAndNodes | None:
        """Pods and nodes as they were when `measuring`, the objects of measurements, last changed,
        and not long ago. A change of `serving`, what stands for pods that serve, waits a while:
        nothing is measured that has only just come. None: they cannot be read, and nothing follows
        from that."""
        began, known = self._clock(), self._known
        if known is not None and known.is_good(began, serving, measuring):
            return known.pods_and_nodes
        try:
            pods = tuple(_slim_pod(pod) for pod in self._all("Pod", _PODS))
            nodes = {
                str(node["metadata"]["name"]): _slim_node(node)
                for node in self._all("Node", _NODES)
            }
        except ClusterError as error:  # also without the right to: the pass goes on
            _log.debug("what could be measured is not known: %s", error)
            return None
        seen = PodsAndNodes(pods, nodes)
        self._known = _LastRead(began, self._clock() - began, serving, measuring, seen)
        return seen

    def _all(self, kind: str, selector: str) -> Iterator[Manifest]:
        """One page at a time, of which little is kept."""
        for page in self._api.pages(SERVED_KINDS["", kind], selector=selector):
            yield from page.items


@dataclass(frozen=True, slots=True)
class _LastRead:
    began: float
    took_s: float
    serving: tuple[object, ...]
    measuring: tuple[object, ...]
    pods_and_nodes: PodsAndNodes

    def is_good(
        self, now: float, serving: tuple[object, ...], measuring: tuple[object, ...]
    ) -> bool:
        age_s = now - self.began
        good_for_s = _GOOD_FOR_S if serving == self.serving else _PAUSE_PER_READ * self.took_s
        return measuring == self.measuring and age_s < good_for_s


# What is kept of them for minutes: a whole pod takes 25 KiB of memory.


def _slim_pod(pod: Manifest) -> Manifest:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    metadata = _only(pod["metadata"], "name", "namespace", "labels", "ownerReferences")
    metadata |= _only(pod["metadata"], "annotations", "deletionTimestamp")
    made = {
        part: [_only(c, "name", "image", "resources") for c in spec.get(part) or ()]
        for part in ("containers", "initContainers")
    }
    kept = _only(status, "podIP", "phase", "reason", "message", "conditions")
    states = {
        part: [_only(c, "name", "imageID", "state") for c in status.get(part) or ()]
        for part in ("containerStatuses", "initContainerStatuses")
    }
    return {
        "metadata": metadata,
        "spec": {**_only(spec, "nodeName"), **made},
        "status": {**kept, **states},
    }


def _slim_node(node: Manifest) -> Manifest:
    status = node.get("status") or {}
    ready = [
        _only(each, "type", "status")
        for each in status.get("conditions") or ()
        if each.get("type") == "Ready"
    ]
    return {
        "metadata": _only(node["metadata"], "name", "labels", "annotations"),
        "spec": _only(node.get("spec") or {}, "taints", "unschedulable"),
        "status": {**_only(status, "allocatable"), "conditions": ready},
    }


def _only(of: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: of[name] for name in names if name in of}
