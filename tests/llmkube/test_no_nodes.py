"""Fleets without a FleetNode, as those are that were written for a cluster alone."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.api.fleetnode import FleetNode
from reconciler.fleet.fleet import Fleet
from reconciler.kube.render import render
from reconciler.kube.render.declared import declared
from reconciler.kube.render.placed import placed
from reconciler.loop.desired import Desired, no_facts
from reconciler.placement.pods import InCluster
from reconciler.runtimes import RUNTIMES
from reconciler.source.load import load
from tests.support.fleets import MemoryCheckout, document, model, node, service

FLEET = document("Fleet", "home", {})


def desired(*texts: str) -> Desired:
    checkout = MemoryCheckout({f"{i}.yaml": text for i, text in enumerate(texts)})
    loaded = load(checkout, RUNTIMES)
    assert isinstance(loaded.fleet, Fleet), loaded.problems
    return Desired.of(checkout, loaded, InCluster("prod")(loaded.fleet), no_facts)


def pod_of(made: Desired) -> dict[str, Any]:
    (one,) = placed(made, "prod")
    (deployment,) = (m for m in render(one) if m["kind"] == "Deployment")
    pod: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return pod


def test_its_services_go_to_the_cluster_as_their_own_documents_say() -> None:
    chat = service(
        resources={"gpu": 2, "memory": "8Gi"},
        nodeSelector={"pool": "gpu"},
        tolerations=[{"key": "spot", "operator": "Exists"}],
    )

    pod = pod_of(desired(FLEET, model(), chat))

    assert pod["nodeSelector"] == {"pool": "gpu"}
    assert {"key": "spot", "operator": "Exists"} in pod["tolerations"]
    assert pod["containers"][0]["resources"] == {
        "requests": {"memory": "8Gi", "nvidia.com/gpu": "2"},
        "limits": {"nvidia.com/gpu": "2"},
    }


@pytest.mark.parametrize(
    ("accelerator", "resource"),
    [("cuda", "nvidia.com/gpu"), ("rocm", "amd.com/gpu"), ("cpu", None), (None, None)],
)
def test_pods_ask_for_the_device_that_their_model_needs(
    accelerator: str | None, resource: str | None
) -> None:
    hardware = {"accelerator": accelerator} if accelerator else {}

    pod = pod_of(desired(FLEET, model(hardware=hardware), service(image="engine:1")))

    limits = pod["containers"][0].get("resources", {}).get("limits", {})
    assert set(limits) == ({resource} if resource else set())


def test_nothing_that_git_does_not_have_is_written_to_the_cluster() -> None:
    kinds = {thing.kind for thing in declared(desired(FLEET, model(), service()), "prod")}

    assert kinds == {"Fleet", "InferenceService", "Model"}


def test_a_model_for_metal_waits_for_a_mac() -> None:
    made = desired(FLEET, model(hardware={"accelerator": "metal"}), service())

    (hold,) = made.assignment.holds
    assert hold.finding.rule == "NodeCapability"
    assert "no metal" in hold.finding.message


def test_a_fleet_with_any_node_keeps_to_its_nodes() -> None:
    made = desired(FLEET, model(), service(), node("mac"))

    assert [n.metadata.name for n in made.fleet.all(FleetNode)] == ["mac"]


def test_without_a_cluster_it_is_said_what_is_missing() -> None:
    checkout = MemoryCheckout({"a.yaml": model() + "---\n" + service()})
    loaded = load(checkout, RUNTIMES)
    assert loaded.fleet is not None

    (hold,) = Desired.of(checkout, loaded, loaded.fleet, no_facts).assignment.holds

    assert "add one, or name the cluster with --cluster" in hold.finding.message
