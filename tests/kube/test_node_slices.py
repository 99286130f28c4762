"""Who writes the endpoints of an agent node in a cluster, and what the reconciler writes."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.core.observation import Instance, Observation, TargetState
from reconciler.fleet.workload import Exposure
from reconciler.kube.endpoints.heartbeat import LeaseState
from reconciler.kube.endpoints.node_slices import NodeSlices, node_slices
from reconciler.kube.endpoints.slices import slice_of
from reconciler.kube.inventory import labelled
from reconciler.kube.objects import Manifest, id_of
from tests.support.builders import instance, workload

NODE = "node/mac"


def served(**overrides: Any) -> Instance:
    return instance(of=workload(listen=Exposure("open", "192.0.2.7")), port=8081, **overrides)


def ours(of: Instance) -> Manifest:
    """A slice of ours as it lies in the cluster."""
    made = slice_of(of)
    assert isinstance(made, dict)
    found = labelled(made, "home")
    return {**found, "metadata": {**found["metadata"], "resourceVersion": "7", "uid": "u"}}


def slices(
    *running: Instance,
    lease: LeaseState = LeaseState.NONE,
    answers: bool = True,
    live: tuple[Manifest, ...] = (),
) -> NodeSlices:
    seen = Observation({NODE: TargetState(NODE, reachable=answers)}, running)
    return node_slices(["mac"], "home", seen, {"mac": lease}, {id_of(m): m for m in live})


def ready(manifest: Manifest) -> bool:
    (endpoint,) = manifest["endpoints"]
    return bool(endpoint["conditions"]["ready"])


@pytest.mark.parametrize("lease", [LeaseState.NONE, LeaseState.STALE])
def test_an_agent_that_only_answers_has_its_endpoints_written_for_it(lease: LeaseState) -> None:
    (made,) = slices(served(), lease=lease).wanted

    assert made["endpoints"][0]["addresses"] == ["192.0.2.7"]
    assert made["ports"][0]["port"] == 8081
    assert ready(made)


def test_an_endpoint_follows_its_process() -> None:
    (made,) = slices(served(ready=False), live=(ours(served()),)).wanted

    assert not ready(made)


def test_an_agent_that_renews_its_lease_is_left_to_write_itself() -> None:
    before = ours(served())

    found = slices(served(), lease=LeaseState.RENEWED, live=(before,))

    assert found.wanted == ()
    assert found.left == {id_of(before)}


@pytest.mark.parametrize("lease", [LeaseState.NONE, LeaseState.STALE])
def test_the_endpoints_of_a_silent_node_are_withdrawn_and_stay(lease: LeaseState) -> None:
    found = slices(lease=lease, answers=False, live=(ours(served()),))

    (kept,) = found.wanted
    assert not ready(kept)
    assert "resourceVersion" not in kept["metadata"]
    assert found.silent == {"mac"}


def test_a_service_without_an_address_has_no_endpoint() -> None:
    assert slices(instance(port=8081)).wanted == ()


def test_a_service_that_is_gone_from_a_node_that_answers_is_wanted_no_more() -> None:
    assert slices(live=(ours(served()),)) == NodeSlices()
