"""Which pods of a service are asked how fast they write, and what its status says of it. Pure.

The addresses come from the EndpointSlices that Kubernetes keeps for the service's Service: they are
watched anyway, and hold of each pod only what is needed here.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from reconciler.agents.scrape import figures
from reconciler.api.meta import ObjectRef
from reconciler.fleet.workload import Workload
from reconciler.kube.diff.managed import child, entries_as_they_are
from reconciler.kube.endpoints.slices import SLICE_MANAGED_BY_LABEL
from reconciler.kube.instance_entry import NODE, SPEED, is_other_speed
from reconciler.kube.json_text import to_json
from reconciler.kube.objects import SPEED_MANAGER, Manifest
from reconciler.metrics.table import COMPANION
from reconciler.runtimes import RUNTIMES

_OF_PODS = "endpointslice-controller.k8s.io"  # not of what others say, agents among them
_METRIC = COMPANION["flexinfer_tokens_per_second"].name
_MOST_SPEED = 1e9  # tokens a second: no pod writes as many

Speeds = Mapping[str, float | None]
"""The speed in each entry of one service, by its pool."""


@dataclass(frozen=True, slots=True)
class PodAnswer:
    """What a companion answered. `speed` is None where it cannot tell yet, or at all: an engine
    that has just started, or has nothing loaded."""

    speed: float | None


@dataclass(frozen=True, slots=True)
class ServicePods:
    """A service's pool, and the addresses of its ready pods, by name. None: it runs in no pod
    there, or no engine of its kind counts tokens."""

    pool: str | None = None
    pods: Mapping[str, str] = field(default_factory=dict)


def counting_pools(workloads: Iterable[Workload], cluster: str) -> Mapping[ObjectRef, str]:
    """The pool of every service that should run there with an engine that counts tokens."""
    return {
        w.ref: w.node
        for w in workloads
        if w.cluster == cluster and not w.suspended and RUNTIMES[w.runtime].tokens_metric
    }


def ready_pods(slice_: Manifest) -> Iterator[tuple[str, str]]:
    """(name, address) of the ready pods in a slice. A pod with addresses of both families is in two
    slices, under one name."""
    if (slice_["metadata"].get("labels") or {}).get(SLICE_MANAGED_BY_LABEL) != _OF_PODS:
        return
    for endpoint in slice_.get("endpoints") or ():
        target = endpoint.get("targetRef") or {}
        is_ready = (endpoint.get("conditions") or {}).get("ready") is not False
        address = _address(next(iter(endpoint.get("addresses") or ()), None))
        if target.get("kind") == "Pod" and is_ready and address is not None:
            yield str(target.get("name")), address


def read_answer(exposition: str) -> PodAnswer | None:
    """The speed of a companion's pod, over all of its models. None: it makes no sense."""
    values = figures(exposition, _METRIC)
    total = sum(values)
    if not math.isfinite(total) or total > _MOST_SPEED or any(speed < 0 for speed in values):
        return None
    return PodAnswer(total if values else None)


def speed_of(pods: Iterable[str], answers: Mapping[str, PodAnswer]) -> float | None:
    """The speed of a service by its pods' answers, in tenths. Without the answer of one it is not
    known: the sum of the others would be too little."""
    answers_of_pods = [answers.get(name) for name in pods]
    known = [a.speed for a in answers_of_pods if a is not None and a.speed is not None]
    return round(sum(known), 1) if known and None not in answers_of_pods else None


def own_speeds(live: Manifest) -> Speeds:
    """What the status says that was written from here, by this process or one before it."""
    rows = (row for row in entries_as_they_are(live) if row.manager == SPEED_MANAGER)
    owned = [child(child(row.fields, "f:status"), "f:instances") or {} for row in rows]
    listed = (live.get("status") or {}).get("instances") or () if owned else ()
    return {
        str(entry[NODE]): entry.get(SPEED)
        for entry in listed
        if any(_key(str(entry.get(NODE))) in fields for fields in owned)
    }


def is_news(before: Speeds, now: Speeds) -> bool:
    """Whether the entries of a service are worth a write: asked once a minute."""
    if before.keys() != now.keys():
        return True
    return any(is_other_speed(before[pool], speed, math.inf) for pool, speed in now.items())


def _key(node: str) -> str:
    """An entry as the API server names it among the fields of an owner."""
    return f"k:{to_json({NODE: node}).decode()}"


def _address(text: object) -> str | None:
    """The address as the host of a URL. None: an address that no pod has."""
    try:
        address = ipaddress.ip_address(str(text))
    except ValueError:
        return None
    return f"[{address}]" if address.version == 6 else str(address)
