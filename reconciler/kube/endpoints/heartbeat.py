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

from enum import StrEnum

from reconciler.kube.endpoints.slices import NODE_LABEL
from reconciler.kube.objects import MANAGED_BY_LABEL, MANAGER, SYSTEM_NAMESPACE, Manifest
from reconciler.timestamps import parse_timestamp, timestamp

RENEW_S = 10.0
STALE_S = 40.0
LEASES_PATH = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases"


class LeaseState(StrEnum):
    NONE = "none"  # no agent of that node ever took over its services in this cluster
    RENEWED = "renewed"
    STALE = "stale"


class LeaseWriter(StrEnum):
    AGENT = "agent"
    RECONCILER = "reconciler"
    NOBODY = "nobody"  # the state of the node is unknown: its endpoints are withdrawn


def renewal_pause_s(share: float) -> float:
    """Seconds until the next renewal; `share` is a random number between 0 and 1. Agents that
    started together would write to one API server together for ever."""
    return RENEW_S * (0.8 + 0.4 * share)


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
            # the same as in an installation
            "labels": {MANAGED_BY_LABEL: MANAGER, NODE_LABEL: node},
        },
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": int(STALE_S),
            "renewTime": timestamp(now, "microseconds"),
        },
    }


def lease_state(lease: Manifest | None, now: float, changed_at: float | None = None) -> LeaseState:
    """The state of a node's Lease at `now`, seconds since the epoch.

    `changed_at` is when the caller saw `renewTime` change last, by its own clock: the two machines'
    clocks may differ. Without it, the agent's clock counts. A Lease that was never renewed (an
    installation creates it) counts as none; a renewal that cannot be parsed is stale.
    """
    renewal = (lease or {}).get("spec", {}).get("renewTime")
    if not renewal:
        return LeaseState.NONE
    renewed_at = parse_timestamp(renewal)
    renewed = renewed_at if changed_at is None else changed_at
    if renewed is None or now - renewed > STALE_S:
        return LeaseState.STALE
    return LeaseState.RENEWED


def writer(state: LeaseState, *, answers: bool) -> LeaseWriter:
    """Who writes the slices of a node; `answers`: its agent responds over HTTP."""
    if state is LeaseState.RENEWED:
        return LeaseWriter.AGENT
    return LeaseWriter.RECONCILER if answers else LeaseWriter.NOBODY
