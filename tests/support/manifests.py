"""Fleets as the objects that they become in a cluster."""

from __future__ import annotations

from reconciler.desired import Desired, no_facts
from reconciler.fleet import Fleet
from reconciler.kube.objects import Manifest
from reconciler.kube.placed import placed
from reconciler.kube.render import render
from reconciler.runtimes import RUNTIMES
from reconciler.source.load import load
from tests.support.fleets import MemoryCheckout

CLUSTER = "prod"
URL = "https://git.test/fleet.git"


def desired_of(*texts: str) -> Desired:
    """What files with these contents declare. Everything in them must be in order."""
    files = {f"{index}.yaml": text for index, text in enumerate(texts)}
    checkout = MemoryCheckout(files)
    loaded = load(checkout, RUNTIMES)
    assert isinstance(loaded.fleet, Fleet), loaded.problems
    return Desired.of(checkout, loaded, loaded.fleet, no_facts)


def rendered(*texts: str, cluster: str = CLUSTER) -> tuple[Manifest, ...]:
    """The objects of every service on that cluster, service by service."""
    return tuple(m for p in placed(desired_of(*texts), cluster, URL) for m in render(p))
