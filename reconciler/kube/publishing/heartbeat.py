"""The Lease by which a node's agent says that it is there, and writes its slices itself. Pure.

    Lease        agent over HTTP    who writes the node's slices
    renewed      either             the agent
    stale        answers            the reconciler, from what the agent says
    stale        silent             the reconciler: endpoints withdrawn (slices.stale_slices)
    none         answers            the reconciler, from what the agent says
    none         silent             the reconciler: endpoints withdrawn

A Lease is never removed by an agent that ends: the models it leaves running are nobody's who could
say how they are, and 40 s are enough for its next life to renew it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum

from reconciler.kube.objects import MANAGED_BY_LABEL, MANAGER, SYSTEM_NAMESPACE, Manifest
from reconciler.kube.publishing.slices import NODE_LABEL

RENEW_S = 10.0
STALE_S = 40.0
LEASES_PATH = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases"


class LeaseState(StrEnum):
    NONE = "none"  # no agent of that node ever took its services from this cluster
    RENEWED = "renewed"
    STALE = "stale"


class Writer(StrEnum):
    AGENT = "agent"
    RECONCILER = "reconciler"
    NOBODY = "nobody"  # nobody knows how the node is: its endpoints are to be withdrawn


def lease_name(node: str) -> str:
    return f"fleet-node-{node}"


def lease_manifest(node: str, holder: str, now: float) -> Manifest:
    """The Lease as the agent renews it; `now` is in seconds since the epoch."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": lease_name(node),
            "namespace": SYSTEM_NAMESPACE,
            "labels": {MANAGED_BY_LABEL: MANAGER, NODE_LABEL: node},  # as an installation makes it
        },
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": int(STALE_S),
            "renewTime": _stamp(now),
        },
    }


def lease_state(lease: Manifest | None, now: float, changed_at: float | None = None) -> LeaseState:
    """How a node's Lease stands at `now`, seconds since the epoch. `changed_at` is when the caller
    saw `renewTime` change last, by its own clock: the two machines' clocks may differ. Without it,
    the agent's clock counts. One that was never renewed (an installation makes it) counts as none;
    a renewal that cannot be read is stale."""
    renewal = (lease or {}).get("spec", {}).get("renewTime")
    if not renewal:
        return LeaseState.NONE
    said = read_time(str(renewal))
    renewed = said if changed_at is None else changed_at
    if renewed is None or now - renewed > STALE_S:
        return LeaseState.STALE
    return LeaseState.RENEWED


def writer(state: LeaseState, *, answers: bool) -> Writer:
    """Who writes the slices of a node; `answers`: its agent says over HTTP what it runs."""
    if state is LeaseState.RENEWED:
        return Writer.AGENT
    return Writer.RECONCILER if answers else Writer.NOBODY


def read_time(text: str) -> float | None:
    """Seconds since the epoch of an RFC 3339 time; None: it is none."""
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        return None
    return read.replace(tzinfo=read.tzinfo or UTC).timestamp()


def _stamp(now: float) -> str:
    """MicroTime, as Leases have it."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
