"""Keeps the objects that a node publishes in a cluster current: its EndpointSlices and, without a
reconciler, their Services. Used by one thread."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from reconciler.kube.client.errors import AccessError, ClusterError, Throttled, Unreachable
from reconciler.kube.endpoints.slices import NODE_LABEL, SLICE_SERVICE_LABEL
from reconciler.kube.objects import (
    AGENT_MANAGER,
    MANAGED_BY_LABEL,
    OWNED_KINDS,
    SERVICE_LABEL,
    Manifest,
    ObjectId,
    id_of,
)

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer

OUTAGES = (Unreachable, Throttled, AccessError)
_SLICE = OWNED_KINDS["discovery.k8s.io", "EndpointSlice"]
_SERVICE = OWNED_KINDS["", "Service"]
# Changes by others are corrected about this late; a watch would cost a thread. Random, so that
# agents that started together do not list together.
RESYNC_S = 60.0
_log = logging.getLogger(__name__)


class Endpoints:
    """The objects of one node in one cluster. `manager` is the field manager of its slices."""

    def __init__(self, api: ApiServer, node: str, manager: str, namespace: str | None) -> None:
        self._api, self._node, self._manager = api, node, manager
        self._namespace = namespace or ""
        self._live: dict[ObjectId, Manifest] = {}
        self._list_at = 0.0
        self._refusals: dict[ObjectId, str] = {}
        self._refused: set[ObjectId] = set()

    def sync(
        self,
        slices: Mapping[ObjectId, Manifest],
        services: Mapping[ObjectId, Manifest] | None = None,
    ) -> None:
        """Write these objects and remove others; `services` None: they are the reconciler's. A
        refusal is logged once and retried with the next list. Raises Unreachable, Throttled,
        AccessError."""
        wanted = {**(services or {}), **slices}
        if time.monotonic() >= self._list_at:
            self._list(with_services=services is not None)
        for oid, manifest in wanted.items():
            if oid not in self._refused and not _is_as(self._live.get(oid), manifest):
                self._guarded(oid, self._write, manifest)
        gone = [oid for oid in self._live if oid not in wanted]
        for oid in sorted(gone, key=lambda o: o.kind):  # slices first: Services wait for the last
            self._guarded(oid, self._delete, self._live[oid])

    def _list(self, *, with_services: bool) -> None:
        selectors = {_SLICE: f"{NODE_LABEL}={self._node}"}
        if with_services:
            selectors[_SERVICE] = f"{MANAGED_BY_LABEL}={AGENT_MANAGER}"
        self._live = {
            id_of(live): live
            for kind, selector in selectors.items()
            for live in self._api.list(kind, selector=selector, namespace=self._namespace).items
        }
        pause_s = RESYNC_S * random.uniform(0.8, 1.2)  # noqa: S311 - not for secrets
        self._list_at = time.monotonic() + pause_s
        self._refused.clear()

    def _write(self, oid: ObjectId, manifest: Manifest) -> None:
        live = self._live.get(oid) or self._api.get(oid)
        if live is not None and not _is_ours(live, manifest):
            raise ClusterError(f"{oid.label} is there already and not this node's: left as it is")
        if live is not None and live.get("addressType") != manifest.get("addressType"):
            self._api.delete(oid, uid=live["metadata"]["uid"])  # it cannot be changed in place
        manager = self._manager if oid.kind == _SLICE.kind else AGENT_MANAGER
        # Forced: the reconciler wrote it while our Lease was stale.
        self._live[oid] = self._api.apply(manifest, manager=manager, force=True)
        _log.debug("%s written", oid.label)

    def _delete(self, oid: ObjectId, live: Manifest) -> None:
        if oid.kind == _SERVICE.kind and self._has_slices(oid):
            return
        self._api.delete(oid, uid=live["metadata"]["uid"])
        del self._live[oid]
        _log.debug("%s removed", oid.label)

    def _has_slices(self, service: ObjectId) -> bool:
        """Whether another node has slices of the same service."""
        selector = f"{SLICE_SERVICE_LABEL}={service.name}"
        return bool(self._api.list(_SLICE, selector=selector, namespace=service.namespace).items)

    def _guarded(
        self, oid: ObjectId, step: Callable[[ObjectId, Manifest], None], manifest: Manifest
    ) -> None:
        try:
            step(oid, manifest)
        except OUTAGES:
            raise
        except ClusterError as error:
            self._refused.add(oid)
            if self._refusals.get(oid) != str(error):
                self._refusals[oid] = str(error)
                _log.warning("%s", error)
        else:
            self._refusals.pop(oid, None)


def _is_ours(live: Manifest, manifest: Manifest) -> bool:
    """Judged by the labels, not only by the name."""
    there, wanted = live["metadata"].get("labels") or {}, manifest["metadata"]["labels"]
    keys = (SERVICE_LABEL, NODE_LABEL if NODE_LABEL in wanted else MANAGED_BY_LABEL)
    return all(there.get(key) == wanted[key] for key in keys)


def _is_as(live: Manifest | None, manifest: Manifest) -> bool:
    """Whether the live object has everything in the manifest; the server adds more."""
    if live is None:
        return False
    labels = live["metadata"].get("labels") or {}
    wanted = manifest["metadata"]["labels"]
    parts = {key: value for key, value in manifest.items() if key not in ("metadata", "status")}
    return {k: labels.get(k) for k in wanted} == wanted and _holds(live, parts)


def _holds(live: object, wanted: object) -> bool:
    if isinstance(wanted, Mapping):
        return isinstance(live, Mapping) and all(_holds(live.get(k), v) for k, v in wanted.items())
    if isinstance(wanted, list | tuple):
        return (
            isinstance(live, list)
            and len(live) == len(wanted)
            and all(_holds(there, part) for there, part in zip(live, wanted, strict=True))
        )
    return live == wanted
