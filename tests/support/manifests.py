"""Fleets as the objects that they become in a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from reconciler.fleet.fleet import Fleet
from reconciler.kube.objects import Manifest
from reconciler.kube.render import render
from reconciler.kube.render.placed import placed
from reconciler.loop.desired import Desired, no_facts
from reconciler.runtimes import RUNTIMES
from reconciler.source.load import load
from tests.support.fleets import MemoryCheckout, document, model

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


def pool(name: str = "edge", **spec: Any) -> str:
    """A FleetNode that is a pool of that cluster."""
    stated = {"kubernetes": {"cluster": CLUSTER}, "hardware": {"memory": "64Gi"}}
    return document("FleetNode", name, stated | spec)


def one_service(home: str | None = None, **spec: Any) -> tuple[Manifest, ...]:
    """The objects of service `chat` of model `gemma` on pool `edge`. `models` are documents of
    Models, `models_` is spec.models."""
    declared = [model("gemma")]
    if "models" in spec and isinstance(spec["models"][0], str):
        declared = spec.pop("models")
    if "models_" in spec:
        spec["models"] = spec.pop("models_")
    stated = {"modelRef": "gemma", "placement": {"nodes": ["edge"]}, **spec}
    chat = {name: value for name, value in stated.items() if value is not None}
    return rendered(home or pool("edge"), *declared, document("InferenceService", "chat", chat))


def of_kind(made: Iterable[Manifest], kind: str) -> list[Manifest]:
    return [manifest for manifest in made if manifest["kind"] == kind]


def one(made: Iterable[Manifest], kind: str) -> Manifest:
    (found,) = of_kind(made, kind)
    return found


def template_of(made: Iterable[Manifest]) -> dict[str, Any]:
    found: dict[str, Any] = one(made, "Deployment")["spec"]["template"]
    return found


def engine_of(made: Iterable[Manifest]) -> dict[str, Any]:
    (found,) = template_of(made)["spec"]["containers"]
    return dict(found)


def init_containers(made: Iterable[Manifest]) -> list[dict[str, Any]]:
    return list(template_of(made)["spec"]["initContainers"])


def templates(made: Iterable[Manifest]) -> Iterator[dict[str, Any]]:
    return (m["spec"]["template"] for m in made if "template" in m.get("spec", {}))
