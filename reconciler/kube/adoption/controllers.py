"""Other controllers of the kinds that are ours: what shows that one is live, and which program
applies an object."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from reconciler.api.kinds import KINDS
from reconciler.api.meta import GROUP
from reconciler.kube.client.errors import NotFound
from reconciler.kube.kinds import LEASE, SERVED_KINDS
from reconciler.kube.objects import OWNED_KINDS, Manifest, OwnedKind, id_of
from reconciler.timestamps import parse_timestamp

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer

# Part of the image's or the Lease's name -> its owner.
OWNERS: Mapping[str, str] = MappingProxyType({"llmkube": "LLMKube"})
_HEARTBEAT = "llmkube.ai/agent-heartbeat"  # on a slice, by LLMKube's agent on a Mac
_ALIVE_S = 180.0  # since a Lease or a heartbeat was renewed: several periods of either
_DEFINITION = OWNED_KINDS["apiextensions.k8s.io", "CustomResourceDefinition"]
_LOOKED_AT = (
    _DEFINITION,
    OWNED_KINDS["apps", "Deployment"],
    OwnedKind("apps", "v1", "StatefulSet", "statefulsets", 0),
    OwnedKind("apps", "v1", "DaemonSet", "daemonsets", 0),
    SERVED_KINDS["", "Pod"],
    LEASE,
    OWNED_KINDS["discovery.k8s.io", "EndpointSlice"],
)


@dataclass(frozen=True, slots=True)
class Alive:
    """A controller that would keep writing these objects, and how to stop it."""

    what: str
    owner: str
    way_out: str

    def __str__(self) -> str:
        return f"{self.what} of {self.owner} is live; {self.way_out}"


def alive(api: ApiServer) -> tuple[Alive, ...]:
    """Known owners that run, hold a Lease or renew endpoints. Raises ClusterError."""
    now = time.time()
    return tuple(a for kind in _LOOKED_AT for live in _listed(api, kind) for a in signs(live, now))


def signs(live: Manifest, now: float) -> Iterator[Alive]:
    """The signs of life of one object; `now` is in seconds since the epoch."""
    return _SIGNS[live["kind"]](live, now)


def applier_of(live: Manifest) -> str | None:
    """The program that keeps writing it, if it is a known one."""
    metadata = live["metadata"]
    marks = {**(metadata.get("annotations") or {}), **(metadata.get("labels") or {})}
    named = (f"{applier} {marks[m]}" for m, applier in _APPLIERS.items() if marks.get(m))
    return next(named, None)


_APPLIERS: Mapping[str, str] = {
    "kustomize.toolkit.fluxcd.io/name": "Flux Kustomization",
    "helm.toolkit.fluxcd.io/name": "Flux HelmRelease",
    "argocd.argoproj.io/instance": "Argo CD application",
    "argocd.argoproj.io/tracking-id": "Argo CD application",
}


def _of_definition(live: Manifest, _: float) -> Iterator[Alive]:
    """Flux or Argo CD would restore the old definition."""
    mine = live["spec"]["group"] == GROUP and live["spec"]["names"]["kind"] in KINDS
    if mine and (owner := applier_of(live)):
        way = "take the definition out there without pruning it, and its label off it here"
        yield Alive(id_of(live).label, owner, way)


def _of_workload(live: Manifest, _: float) -> Iterator[Alive]:
    if live.get("spec", {}).get("replicas", 1) == 0:
        return
    template = live.get("spec", {}).get("template", {}).get("spec", {})
    if owner := _owner_of(template):
        at = live["metadata"]
        kind = live["kind"].lower()
        way = f"kubectl -n {at['namespace']} scale {kind} {at['name']} --replicas=0"
        if live["kind"] == "DaemonSet":
            way = f"kubectl -n {at['namespace']} delete daemonset {at['name']}"
        yield Alive(id_of(live).label, owner, way)


def _of_pod(live: Manifest, _: float) -> Iterator[Alive]:
    """A pod whose workload is gone or scaled down may still be terminating."""
    if (live.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return
    if (owner := _owner_of(live.get("spec", {}))) and not live["metadata"].get("ownerReferences"):
        at = live["metadata"]
        yield Alive(
            id_of(live).label, owner, f"kubectl -n {at['namespace']} delete pod {at['name']}"
        )
    elif owner and live["metadata"].get("deletionTimestamp"):
        yield Alive(id_of(live).label, owner, "wait until it has ended")


def _owner_of(pod: Mapping[str, Any]) -> str | None:
    """By the images of a pod. The engines that LLMKube starts use other vendors' images."""
    for container in pod.get("containers") or ():
        repository = str(container.get("image", "")).partition("@")[0].lower()
        for word, owner in OWNERS.items():
            if word in re.split(r"[/:-]", repository):
                return owner
    return None


def _of_lease(live: Manifest, now: float) -> Iterator[Alive]:
    spec = live.get("spec") or {}
    renewed = parse_timestamp(spec.get("renewTime"))
    if not spec.get("holderIdentity") or renewed is None or now - renewed > _ALIVE_S:
        return
    name = f"{live['metadata']['name']} {spec['holderIdentity']}".lower()
    for word, owner in OWNERS.items():
        if word in name:
            way = f"it is held by {spec['holderIdentity']}: end that, and wait 3 minutes"
            yield Alive(id_of(live).label, owner, way)


def _of_slice(live: Manifest, now: float) -> Iterator[Alive]:
    beat = parse_timestamp((live["metadata"].get("annotations") or {}).get(_HEARTBEAT))
    if beat is not None and now - beat <= _ALIVE_S:
        way = "end the agent on that machine (launchctl bootout), and wait 3 minutes"
        yield Alive(f"the agent behind {id_of(live).label}", "LLMKube", way)


_SIGNS: Mapping[str, Callable[[Manifest, float], Iterator[Alive]]] = {
    "CustomResourceDefinition": _of_definition,
    "Deployment": _of_workload,
    "StatefulSet": _of_workload,
    "DaemonSet": _of_workload,
    "Pod": _of_pod,
    "Lease": _of_lease,
    "EndpointSlice": _of_slice,
}


def _listed(api: ApiServer, kind: OwnedKind) -> Sequence[Manifest]:
    try:
        return api.list(kind).items
    except NotFound:
        return ()
