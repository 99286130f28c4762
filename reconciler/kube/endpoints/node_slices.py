"""The EndpointSlices of agent nodes that the reconciler has to write: those of nodes whose agent
does not. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reconciler.api.fleetnode import FleetNode
from reconciler.core.observation import Observation
from reconciler.kube.endpoints.heartbeat import LeaseState, LeaseWriter, writer
from reconciler.kube.endpoints.slices import NODE_LABEL, Unpublished, slice_of, stale_slices
from reconciler.kube.inventory import labelled
from reconciler.kube.objects import Manifest, ObjectId
from reconciler.loop.desired import Desired

_KEPT = ("name", "namespace", "labels")


@dataclass(frozen=True, slots=True)
class NodeSlices:
    """`wanted` are ours to apply; `left` are ours from before, now written by their node's agent;
    `silent` are nodes in an unknown state: their slices are withdrawn."""

    wanted: tuple[Manifest, ...] = ()
    left: frozenset[ObjectId] = frozenset()
    silent: frozenset[str] = frozenset()


def published_nodes(desired: Desired, cluster: str) -> tuple[str, ...]:
    """The agent nodes whose services are published in the cluster."""
    return tuple(
        node.metadata.name
        for node in desired.fleet.all(FleetNode)
        if node.spec.agent is not None and cluster in node.spec.agent.clusters
    )


def node_slices(
    nodes: Iterable[str],
    fleet: str,
    observed: Observation,
    leases: Mapping[str, LeaseState],
    live: Mapping[ObjectId, Manifest],
) -> NodeSlices:
    """`live` are the fleet's objects there; `leases` by node, for nodes with a Lease."""
    writers = {name: writer(leases.get(name, LeaseState.NONE), answers=_answers(observed, name))
               for name in nodes}  # fmt: skip
    ours = {
        oid: manifest
        for oid, manifest in live.items()
        if oid.kind == "EndpointSlice" and _node(manifest) in writers
    }
    made = [
        slice_of(instance)
        for instance in observed.instances
        if writers.get(instance.target.removeprefix("node/")) is LeaseWriter.RECONCILER
    ]
    silent = frozenset(name for name, who in writers.items() if who is LeaseWriter.NOBODY)
    kept = [m for m in ours.values() if _node(m) in silent]
    withdrawn = {_identity(m): m for m in stale_slices(kept, silent)}
    wanted = [
        *(
            labelled(published, fleet)
            for published in made
            if not isinstance(published, Unpublished)
        ),
        *(_as_applied(withdrawn.get(_identity(m), m)) for m in kept),
    ]
    left = {oid for oid, m in ours.items() if writers[_node(m)] is LeaseWriter.AGENT}
    return NodeSlices(tuple(wanted), frozenset(left), silent)


def _answers(observed: Observation, node: str) -> bool:
    state = observed.targets.get(f"node/{node}")
    return state is not None and state.reachable


def _node(manifest: Manifest) -> str:
    return str((manifest["metadata"].get("labels") or {}).get(NODE_LABEL, ""))


def _identity(manifest: Manifest) -> tuple[str, str]:
    return manifest["metadata"]["namespace"], manifest["metadata"]["name"]


def _as_applied(live: Manifest) -> Manifest:
    """A live slice as a manifest, without the fields that the server added."""
    metadata = {key: live["metadata"][key] for key in _KEPT}
    rest = {key: live[key] for key in ("apiVersion", "kind", "addressType", "endpoints", "ports")}
    return {**rest, "metadata": metadata}
