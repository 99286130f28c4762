"""How clients in the cluster reach services of agent nodes: a Service for each, and its
EndpointSlices, where the agent of the node does not write them."""

from __future__ import annotations

from reconciler.kube.contribution import ClusterPlanning, Contribution
from reconciler.kube.endpoints.leaving import until_pods_are_gone
from reconciler.kube.endpoints.node_slices import NodeSlices, node_slices, published_nodes
from reconciler.kube.endpoints.takeover import SliceTakeover
from reconciler.kube.object_set import ObjectSet
from reconciler.kube.objects import id_of


def contribute_endpoints(at: ClusterPlanning) -> Contribution:
    """Removes nothing itself: names and slices of what is published no more are pruned. A slice of
    ours that its node's agent writes now is set aside, and so is never removed; one of a node in an
    unknown state is wanted as it is, not ready. Raises ClusterError."""
    slices = _slices(at)
    wanted = {id_of(wanted_slice): wanted_slice for wanted_slice in slices.wanted}
    names = at.wanted.names
    others = at.strangers.under((*names, *wanted))
    live = at.snapshot.objects.changed(others)
    kept = until_pods_are_gone((names[oid] for oid in names), live, at.snapshot.slices)
    return Contribution(
        wanted=ObjectSet({**{id_of(name): name for name in kept}, **wanted}),
        set_aside=slices.left,
        unplanned=(SliceTakeover.of(slices, others),),
    )


def _slices(at: ClusterPlanning) -> NodeSlices:
    """The slices that are ours to write now."""
    nodes = published_nodes(at.desired, at.target.removeprefix("cluster/"))
    if not nodes:
        return NodeSlices()
    leases = {node: beat.state for node, beat in at.nearby.heartbeats.items()}
    return node_slices(nodes, at.wanted.fleet, at.observed, leases, at.snapshot.objects)
