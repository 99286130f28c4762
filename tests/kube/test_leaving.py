"""The name of a service whose pods give way to a node."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.kube.endpoints.leaving import until_pods_are_gone
from reconciler.kube.objects import Manifest, id_of

SELECTOR = {"app": "mini"}


def name_of_mini(**spec: Any) -> dict[str, Any]:
    metadata = {"name": "mini", "namespace": "default"}
    ports = [{"name": "http", "port": 8080}]
    spec = {"ports": ports, **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def slice_of(
    service: str, *addresses: str, by: str = "endpointslice-controller.k8s.io"
) -> Manifest:
    labels = {
        "kubernetes.io/service-name": service,
        "endpointslice.kubernetes.io/managed-by": by,
    }
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"{service}-x7", "namespace": "default", "labels": labels},
        "endpoints": [{"addresses": [address]} for address in addresses],
    }


def wanted(before: Manifest, found: Manifest) -> tuple[Manifest, ...]:
    """What is wanted of the name on its node, where these are there."""
    return until_pods_are_gone([name_of_mini()], {id_of(before): before}, {id_of(found): found})


def test_it_leads_to_its_pods_until_the_last_address_is_gone() -> None:
    before = name_of_mini(selector=SELECTOR)

    (while_there,) = wanted(before, slice_of("mini", "10.0.0.9"))
    (afterwards,) = wanted(before, slice_of("mini"))

    assert while_there["spec"]["selector"] == SELECTOR
    assert afterwards == name_of_mini()


@pytest.mark.parametrize(
    "other",
    [slice_of("mini-two", "10.0.0.9"), slice_of("mini", "10.0.0.9", by="fleet-reconciler")],
    ids=["another service's", "ours"],
)
def test_the_addresses_of_others_keep_nothing(other: Manifest) -> None:
    before = name_of_mini(selector=SELECTOR)

    assert wanted(before, other) == (name_of_mini(),)


def test_a_name_that_never_had_pods_stays_as_it_is_wanted() -> None:
    pods = slice_of("mini", "10.0.0.9")

    assert wanted(name_of_mini(), pods) == (name_of_mini(),)
