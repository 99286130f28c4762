"""Services on pools of alike cluster nodes: where they go, and what their pods are made from."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.api.fleet import FleetSpec
from reconciler.api.kinds import KINDS
from reconciler.api.meta import API_VERSION, Resource
from reconciler.fleet.fleet import Fleet
from reconciler.fleet.workload import Workload
from reconciler.placement.assignment import assign
from reconciler.placement.images import OWN_IMAGE, own_image
from reconciler.placement.modelcache import ModelCache, model_cache
from reconciler.placement.pods import InCluster, target_of
from tests.placement.test_placement import (
    GIB,
    declared,
    fleet,
    homes,
    known,
    messages,
    model,
    node,
    rules,
    service,
)

L4 = {"memory": "64Gi", "devices": [{"vendor": "NVIDIA", "arch": "sm_89", "memory": "23Gi"}]}
STORED = model(source="models/m.gguf")  # in the repository: what pods are made from


def pool(name: str = "edge", hardware: dict[str, Any] | None = None, **spec: Any) -> Resource:
    kubernetes = {"cluster": "prod"} | spec.pop("kubernetes", {})
    document = {
        "apiVersion": API_VERSION,
        "kind": "FleetNode",
        "metadata": {"name": name},
        "spec": {"kubernetes": kubernetes, "hardware": hardware or {}, **spec},
    }
    return KINDS["FleetNode"].model_validate(document)


def on(name: str, service_name: str = "chat", **spec: Any) -> Resource:
    return service(service_name, placement={"nodes": [name]}, **spec)


def placed(*objects: Resource) -> Workload:
    (workload,) = assign(fleet(*objects), {}).workloads
    return workload


def test_another_policy_of_the_fleet_reaches_what_was_placed_before() -> None:
    """A push that changes nothing but the Fleet: every object that it concerns is the same one."""
    home = partial(declared, "Fleet", "home")
    objects = (pool(kubernetes={"cache": "host:/models"}), STORED, on("edge"))
    one, two = ({"llama-server": {"cpu": f"registry.test/llama:{v}"}} for v in (1, 2))
    allowed = home({"hostCaches": ["/models"], "images": one})

    before = assign(fleet(allowed, *objects), {})
    upgraded = fleet(home({"hostCaches": ["/models"], "images": two}), *objects)
    refused = fleet(home({"images": one}), *objects)

    assert before.workloads
    assert assign(upgraded, {}, before) == assign(upgraded, {})
    assert assign(upgraded, {}, before).workloads != before.workloads
    assert rules(assign(refused, {}, before)) == {"chat": "HostCacheRefused"}


def test_a_pool_of_the_only_cluster_is_the_same_object_in_each_revision() -> None:
    """What was placed and rendered for it is known again by that."""
    nameless, named = pool(kubernetes={"cluster": None}), pool("far")
    adjusts = InCluster("prod")

    def clustered(made: Fleet) -> object:
        return made.objects[nameless.ref].model_dump()["spec"]["kubernetes"]["cluster"]

    first = adjusts(fleet(nameless, named, model()))
    second = adjusts(fleet(nameless, named, model(), on("edge")))
    changed = adjusts(fleet(pool(kubernetes={"cluster": None, "count": 3}), model()))

    assert clustered(first) == clustered(changed) == "prod"
    assert second.objects[nameless.ref] is first.objects[nameless.ref]
    assert second.objects[named.ref] is named


def test_a_service_stated_on_a_pool_runs_in_its_cluster() -> None:
    workload = placed(pool(), node(), model(), on("edge"))

    assert (workload.node, workload.cluster, workload.target) == ("edge", "prod", "cluster/prod")


def test_the_only_pool_that_could_take_it_needs_no_statement() -> None:
    assert placed(pool(), model(), service(placement={})).target == "cluster/prod"


def test_a_pool_that_names_no_cluster_is_in_the_default_one() -> None:
    unnamed = pool(kubernetes={"cluster": None})

    assert placed(unnamed, model(), on("edge")).target == "cluster/default"


def test_two_eligible_pools_are_not_chosen_between_and_the_line_to_add_is_given() -> None:
    assignment = assign(fleet(pool(), pool("far"), model(), service(placement={})), {})

    assert rules(assignment) == {"chat": "PlacementNotStated"}
    assert "placement: {nodes: [edge]}" in messages(assignment)["chat"]


def test_a_pool_stands_alone_in_a_placement() -> None:
    both = service(placement={"nodes": ["edge", "far"]})

    assignment = assign(fleet(pool(), pool("far"), model(), both), {})

    assert rules(assignment) == {"chat": "PlacementNotStated"}


def test_replicas_in_a_cluster_are_pods_of_one_workload() -> None:
    workload = placed(pool(), model(), on("edge", replicas=3))

    assert workload.lifecycle["replicas"] == 3


def test_two_services_of_a_pool_may_state_the_same_port() -> None:
    services = [on("edge", name, endpoint={"port": 8080}) for name in ("a", "b")]

    assignment = assign(fleet(pool(), model(), *services), {})

    assert homes(assignment) == {"a": "edge", "b": "edge"}


@pytest.mark.parametrize(
    ("stated", "cache"),
    [
        ("ephemeral", ModelCache()),
        ("host:/models", ModelCache(host="/models")),
        ("claim:kept", ModelCache(claim="kept")),
        ("claim:kept,RWX", ModelCache(claim="kept", mode="RWX")),
        ("pvc:10Gi", ModelCache(size="10Gi")),
        ("pvc:10Gi,RWX", ModelCache(size="10Gi", mode="RWX")),
        ("pvc:10Gi,fast", ModelCache(size="10Gi", storage_class="fast")),
        ("pvc:10Gi,fast,RWX", ModelCache(size="10Gi", storage_class="fast", mode="RWX")),
    ],
)
def test_a_cache_is_what_its_words_say(stated: str, cache: ModelCache) -> None:
    assert model_cache(stated) == cache


def test_a_pod_that_fits_no_node_of_the_pool_is_blocked_with_what_would_fit() -> None:
    small = pool(hardware={"memory": "16Gi"})

    assignment = assign(fleet(small, STORED, on("edge")), known(20 * GIB))

    assert rules(assignment) == {"chat": "MemoryFits"}
    assert "a smaller quantisation fits" in messages(assignment)["chat"]


def test_a_pod_that_fits_a_node_alone_is_not_refused_for_its_neighbours() -> None:
    small = pool(hardware={"memory": "16Gi"})
    models = [model(n, source=f"https://models.test/{n}.gguf") for n in "abcd"]
    services = [on("edge", n, modelRef=n, replicas=2 if n == "d" else 1) for n in "abcd"]

    assignment = assign(fleet(small, *models, *services), known(7 * GIB, *"abcd"))

    assert homes(assignment) == dict.fromkeys("abcd", "edge")
    assert [(f.rule, f.ref.name) for f in assignment.warnings] == [("PoolFull", "edge")]
    assert assignment.warnings[0].message == (
        "its services want 36.4 GiB of host memory at most, and 1 x 10.7 GiB = 10.7 GiB are there:"
        " pods beyond that wait (Pending)"
    )


def test_a_pod_that_wants_more_devices_than_a_node_has_is_blocked() -> None:
    assignment = assign(fleet(pool(hardware=L4), model(), on("edge", devices=2)), {})

    assert rules(assignment) == {"chat": "NodeCapability"}
    assert "has 1" in messages(assignment)["chat"]


@pytest.mark.parametrize(
    ("count", "spec", "warned"),
    [
        (3, {"replicas": 3}, False),
        (3, {"replicas": 4}, True),
        (3, {"replicas": 1, "autoscaling": {"maxReplicas": 4}}, True),
        (3, {"replicas": 4, "gpuLayers": 0}, False),
        (3, {"replicas": 4, "suspend": True}, False),
    ],
)
def test_more_devices_than_a_pool_has_are_a_warning_as_kubernetes_lets_pods_wait(
    count: int, spec: dict[str, Any], warned: bool
) -> None:
    three = pool(hardware=L4, kubernetes={"count": count})

    assignment = assign(fleet(three, model(), on("edge", **spec)), known(18 * GIB))

    assert assignment.holds == ()
    assert [f.message for f in assignment.warnings if f.rule == "PoolFull"] == [
        "its services want 4 devices at most, and 3 x 1 = 3 are there: pods beyond that wait"
        " (Pending)"
    ] * warned


SLICE = {"resources": {"limits": {"nvidia.com/mig-3g.40gb": 1}}}
A100 = {"memory": "256Gi", "devices": [{"vendor": "NVIDIA", "memory": "80Gi"}]}
LABEL = {"nvidia.com/mig-3g.40gb.memory": "20096"}


@pytest.mark.parametrize(
    ("hardware", "selector", "spec", "budget"),
    [
        (A100, {}, {}, "80.0 GiB x 0.95 = 76.0 GiB"),
        (A100, {}, SLICE, "nvidia.com/mig-3g.40gb: 37.3 GiB x 0.95 = 35.4 GiB"),
        ({}, {}, SLICE, "nvidia.com/mig-3g.40gb: 37.3 GiB x 0.95 = 35.4 GiB"),
        (A100, LABEL, SLICE, "nvidia.com/mig-3g.40gb: 19.6 GiB x 0.95 = 18.6 GiB"),
        (A100, {"nvidia.com/mig-3g.40gb.memory": "0"}, SLICE, "37.3 GiB x 0.95 = 35.4 GiB"),
    ],
)
def test_a_pod_on_a_slice_has_the_memory_of_the_slice(
    hardware: dict[str, Any], selector: dict[str, str], spec: dict[str, Any], budget: str
) -> None:
    home = pool(hardware=hardware, kubernetes={"nodeSelector": selector})

    assert homes(assign(fleet(home, STORED, on("edge", **spec)), known(10 * GIB))) == {
        "chat": "edge"
    }
    assert (
        budget in messages(assign(fleet(home, STORED, on("edge", **spec)), known(90 * GIB)))["chat"]
    )


SHARED = {"resources": {"limits": {"nvidia.com/gpu.shared": 1}}}
TURNS = {"nodeSelector": {"nvidia.com/gpu.sharing-strategy": "time-slicing"}}
FOUR = {"nodeSelector": {"nvidia.com/gpu.replicas": "4"}}


@pytest.mark.parametrize(
    ("kubernetes", "spec", "held", "warned"),
    [
        ({}, {}, [], ["PoolFull"]),  # each waits for a device of its own
        ({"deviceReplicas": 4}, {}, ["b"], []),
        ({"deviceReplicas": 1}, {}, [], ["PoolFull"]),
        (FOUR, {}, ["b"], []),
        (TURNS, {}, ["b"], []),
        ({}, SHARED, ["b"], []),
        ({"deviceReplicas": 4}, SLICE, [], []),
        ({"deviceReplicas": 4, "count": 2}, {}, [], ["DeviceShared"]),
        ({**TURNS, "count": 2}, {}, [], ["DeviceShared"]),
        ({"deviceReplicas": 4, "count": 2}, {"gpuLayers": 0}, [], []),
    ],
)
def test_pods_that_share_a_device_have_to_fit_it_together(
    kubernetes: dict[str, Any], spec: dict[str, Any], held: list[str], warned: list[str]
) -> None:
    """Where there is one, it is known that they do; where there are more, only that they may."""
    models = [model(n, source=f"models/{n}.gguf") for n in "ab"]
    services = [on("edge", n, modelRef=n, **spec) for n in "ab"]
    home = pool(hardware=L4, kubernetes=kubernetes)

    assignment = assign(fleet(home, *models, *services), known(15 * GIB, *"ab"))

    assert list(rules(assignment)) == held
    assert [f.rule for f in assignment.warnings if f.ref.kind == "FleetNode"] == warned
    if held:
        assert "taken by default/a" in messages(assignment)["b"]


def test_replicas_that_may_share_a_device_are_named() -> None:
    home = pool(hardware=L4, kubernetes={"deviceReplicas": 2})

    assignment = assign(fleet(home, STORED, on("edge", replicas=3)), known(15 * GIB))

    found = {f.rule: f.message for f in assignment.warnings}
    assert found["DeviceShared"].startswith("2 pods that may share a device (")
    assert "1 x 1 x 2 = 2 are there" in found["PoolFull"]


def test_a_pool_that_its_services_fill_to_the_last_byte_is_large_enough() -> None:
    service, models = on("edge", replicas=2), (STORED,)
    (alone,) = assign(fleet(pool(hardware={"memory": "64Gi"}), *models, service), known()).workloads
    (need,) = alone.needs

    def warned(budget: int, count: int) -> bool:
        home = pool(memory={"budget": budget}, kubernetes={"count": count})
        found = assign(fleet(home, *models, service), known()).warnings
        return "PoolFull" in [finding.rule for finding in found]

    assert not warned(need.bytes, 2)
    assert not warned(need.bytes * 2, 1)
    assert warned(need.bytes * 2 - 1, 1)


def test_what_is_placed_is_run_by_the_node_or_by_the_cluster_of_its_pool() -> None:
    assert [target_of(home) for home in (node("mac"), pool())] == ["node/mac", "cluster/prod"]


def test_the_image_of_our_own_programs_may_be_named_by_the_fleet() -> None:
    named = declared("Fleet", "home", {"images": {"fleet-agent": {"any": "registry.test/own:1"}}})
    plain = declared("Fleet", "home", {})

    assert [own_image(fleet(policy).policy or FleetSpec()) for policy in (named, plain)] == [
        "registry.test/own:1",
        OWN_IMAGE,
    ]


names = st.sampled_from(["a", "b", "c", "d"])


@given(st.dictionaries(names, st.integers(1, 40)), st.integers(1, 40), st.booleans())
def test_adding_a_service_to_a_pool_changes_no_other(
    sizes: dict[str, int], added: int, first: bool
) -> None:
    small = pool(hardware={"memory": "32Gi"})
    all_sizes = sizes | {"0" if first else "z": added}
    models = [model(n, source=f"https://models.test/{n}.gguf") for n in all_sizes]
    everything = [on("edge", n, modelRef=n) for n in all_sizes]
    facts = {ref: f for n, size in all_sizes.items() for ref, f in known(size * GIB, n).items()}

    before = assign(fleet(small, *models, *everything[:-1]), facts)
    after = assign(fleet(small, *models, *everything), facts)

    new = everything[-1].ref
    assert tuple(w for w in after.workloads if w.ref != new) == before.workloads
    assert {r: m for r, m in messages(after).items() if r != new.name} == messages(before)


@pytest.mark.parametrize(
    ("spec", "is_new_pod"),
    [
        ({"contextSize": 4096}, True),
        ({"image": "registry.test/llama:1"}, True),
        ({"resources": {"requests": {"cpu": 2}}}, True),
        ({"imagePullSecrets": [{"name": "pull"}]}, True),
        ({"priority": "high"}, True),
        ({"endpoint": {"port": 9000}}, True),
        ({"rollout": {"drainTimeout": "5s"}}, True),
        ({"replicas": 2}, False),
        ({"endpoint": {"type": "NodePort"}}, False),
        ({"autoscaling": {"maxReplicas": 4}}, False),
        ({"rollout": {"onUpgrade": "restart"}}, False),
        ({"endpoint": {"port": 8080}}, None),
    ],
)
def test_what_makes_new_pods_and_what_does_not(
    spec: dict[str, Any], is_new_pod: bool | None
) -> None:
    before, after = (placed(pool(), model(), on("edge", **more)) for more in ({}, spec))

    assert (before.process_digest != after.process_digest) == bool(is_new_pod)
    assert (before.inputs_digest != after.inputs_digest) == (is_new_pod is not None)


@pytest.mark.parametrize(
    "changed", [{"nodeSelector": {"zone": "b"}}, {"cache": "claim:models"}, {"nodeName": "w1"}]
)
def test_pods_go_by_what_their_pool_states(changed: dict[str, Any]) -> None:
    before = placed(pool(), model(), on("edge"))
    after = placed(pool(kubernetes=changed), model(), on("edge"))

    assert before.process_digest != after.process_digest


def test_how_many_nodes_a_pool_has_makes_no_new_pod() -> None:
    before = placed(pool(), model(), on("edge"))
    after = placed(pool(kubernetes={"count": 4}), model(), on("edge"))

    assert before.inputs_digest == after.inputs_digest


def test_an_image_that_the_fleet_states_counts_where_its_accelerator_is() -> None:
    policy = KINDS["Fleet"].model_validate(
        {
            "apiVersion": API_VERSION,
            "kind": "Fleet",
            "metadata": {"name": "home"},
            "spec": {"images": {"llama-server": {"cuda": "registry.test/cuda:1"}}},
        }
    )
    machines = pool("gpu", hardware=L4), pool("cpu", hardware={"memory": "64Gi"})

    workloads = assign(
        fleet(policy, *machines, model(), on("gpu", "a"), on("cpu", "b")), {}
    ).workloads

    images = {w.ref.name: w.settings["image"] for w in workloads}
    assert images == {"a": "registry.test/cuda:1", "b": None}


@pytest.mark.parametrize(
    ("hardware", "spec", "recreated"),
    [
        (L4, {}, True),
        (L4, {"gpuLayers": 0}, False),
        ({"memory": "64Gi"}, {}, False),
        ({"memory": "64Gi"}, {"resources": {"requests": {"nvidia.com/gpu": 1}}}, True),
    ],
)
def test_pods_with_a_device_go_before_their_successors_come(
    hardware: dict[str, Any], spec: dict[str, Any], recreated: bool
) -> None:
    assert placed(pool(hardware=hardware), model(), on("edge", **spec)).is_recreated == recreated


def test_pods_of_which_no_node_holds_two_go_before_their_successors_come() -> None:
    objects = pool(hardware={"memory": "32Gi"}), STORED, on("edge")

    one, two = (
        assign(fleet(*objects), known(size * GIB)).workloads[0].is_recreated for size in (15, 5)
    )

    assert (one, two) == (True, False)


def test_nothing_of_a_cluster_is_in_the_inputs_of_a_service_on_a_node() -> None:
    workload = placed(node(), model(), service())

    assert "pool" not in workload.inputs
    assert "image" not in workload.settings
    assert "replicas" not in workload.lifecycle
