"""What a process was told for what the fleet leaves open: images and caches of pods."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.api.fleetnode import FleetNode
from reconciler.api.kinds import KINDS
from reconciler.api.meta import API_VERSION, Resource
from reconciler.kube.render.declared import manifest_of
from reconciler.placement.assignment import assign
from reconciler.placement.defaults import WithDefaults, otherwise_applied, taken
from tests.placement.test_placement import fleet, model, service
from tests.placement.test_pods import L4, on, pool

IMAGE, FOLDER = "registry.test/default:1", "/models"
TOLD = {"DEFAULT_BACKEND_IMAGE": IMAGE, "MODEL_CACHE_PATH": FOLDER}


def policy(**spec: Any) -> Resource:
    document = {"apiVersion": API_VERSION, "kind": "Fleet", "metadata": {"name": "home"}}
    return KINDS["Fleet"].model_validate(document | {"spec": spec})


@pytest.mark.parametrize(
    ("stated", "home", "images", "image"),
    [
        ({}, {}, {}, IMAGE),
        ({"image": "registry.test/own:1"}, {}, {}, "registry.test/own:1"),
        ({}, {}, {"llama-server": {"cuda": "registry.test/fleets:1"}}, "registry.test/fleets:1"),
        ({}, {}, {"llama-server": {"rocm": "registry.test/fleets:1"}}, IMAGE),
        ({"runtime": "llama-server"}, {}, {}, None),
        ({}, {"defaultRuntime": "llama-server"}, {}, None),
    ],
    ids=["nothing", "service", "fleet", "fleet-elsewhere", "runtime", "runtime-of-the-pool"],
)
def test_the_default_image_is_of_services_that_leave_runtime_and_image_open(
    stated: dict[str, Any], home: dict[str, Any], images: dict[str, Any], image: str | None
) -> None:
    """None: our own table decides. One image cannot serve whatever runtime a service names."""
    objects = policy(images=images), pool(hardware=L4, **home), model(), on("edge", **stated)

    told = WithDefaults(TOLD)(fleet(*objects))
    workloads = assign(told, {}).workloads

    assert [w.settings["image"] for w in workloads] == [image]
    assert [t.variable for t in taken(told, workloads)] == (
        ["DEFAULT_BACKEND_IMAGE"] if image == IMAGE else []
    )


def test_the_default_folder_is_of_pools_that_state_no_cache_where_the_fleet_lists_it() -> None:
    stated = pool("stated", kubernetes={"cache": "ephemeral"})
    objects = pool("open"), stated, model(), on("open", "a"), on("stated", "b")
    adjusts = WithDefaults({"MODEL_CACHE_PATH": FOLDER})

    allowed = adjusts(fleet(policy(hostCaches=[FOLDER]), *objects))
    again = adjusts(fleet(policy(hostCaches=[FOLDER]), *objects, service("c")))
    refused = adjusts(fleet(policy(hostCaches=["/srv"]), *objects))

    caches = {w.node: w.pool.cache for w in assign(allowed, {}).workloads if w.pool}
    assert caches == {"open": "host:/models", "stated": "ephemeral"}
    nodes = {node.metadata.name: node for node in allowed.all(FleetNode)}
    assert all(again.objects[node.ref] is node for node in nodes.values())
    assert manifest_of(nodes["open"])["spec"]["kubernetes"] == {"cluster": "prod"}
    caches = {w.node: w.pool.cache for w in assign(refused, {}).workloads if w.pool}
    assert set(caches.values()) == {"ephemeral"}
    said = [f for f in assign(refused, {}).warnings if f.rule == "DefaultTaken"]
    assert [(f.ref.name, f.message) for f in said] == [
        ("open", "MODEL_CACHE_PATH of this process, /models, is not heeded: the Fleet's hostCaches"
         " do not list it")
    ]  # fmt: skip


def test_what_another_process_was_told_is_said_and_what_only_this_one_was_is_not() -> None:
    objects = policy(hostCaches=[FOLDER]), pool(), model(), on("edge")
    told, untold = WithDefaults(TOLD)(fleet(*objects)), fleet(*objects)

    notes = [f.message for f in assign(told, {}).warnings if f.rule == "DefaultTaken"]

    assert notes == [
        "/models by MODEL_CACHE_PATH of this process, as the fleet states none: edge",
        f"{IMAGE} by DEFAULT_BACKEND_IMAGE of this process, as the fleet states none: default/chat",
    ]
    assert otherwise_applied(TOLD, told) == otherwise_applied({}, told) == ""
    assert otherwise_applied(TOLD, untold) == (
        f"applied there with DEFAULT_BACKEND_IMAGE={IMAGE} (here: none), MODEL_CACHE_PATH=/models"
        " (here: none): give each process the same"
    )


@pytest.mark.parametrize(("count", "end"), [(5, ", default/s4"), (6, ", default/s4 and 1 more")])
def test_a_default_that_many_take_names_some_of_them(count: int, end: str) -> None:
    services = [on("edge", f"s{number}") for number in range(count)]
    told = WithDefaults(TOLD)(fleet(policy(), pool(), model(), *services))

    (said,) = [f.message for f in assign(told, {}).warnings if f.message.startswith(IMAGE)]

    assert said.endswith(end)


@pytest.mark.parametrize(
    ("image", "owner"),
    [
        ("ghcr.io/flexinfer/ollama:latest", "Ollama"),
        ("registry.test:5000/mirror/ollama@sha256:00", "Ollama"),
        ("vllm/vllm-openai:v1", "vllm"),
        ("ghcr.io/ggml-org/llama.cpp:server", None),
        ("registry.test/mirror/llama.cpp@sha256:00", None),
        ("registry.test/of-our-own:1", None),
    ],
)
def test_an_image_that_is_another_engines_by_its_name_is_a_warning(
    image: str, owner: str | None
) -> None:
    """Whoever names it, the service, the Fleet or the process that plans."""
    node = pool(hardware=L4)
    by_process = WithDefaults({"DEFAULT_BACKEND_IMAGE": image})(fleet(node, model(), on("edge")))
    by_fleet = fleet(policy(images={"llama-server": {"cuda": image}}), node, model(), on("edge"))
    by_service = fleet(node, model(), on("edge", image=image))

    for named in (by_process, by_fleet, by_service):
        found = [f.message for f in assign(named, {}).warnings if f.rule == "ImageMismatch"]
        assert len(found) == (0 if owner is None else 1)
        for message in found:
            assert message.startswith(f"{image} is an image of {owner} by its name")
            assert "started as /app/llama-server, which that does not have" in message
