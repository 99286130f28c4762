"""Services that can have no objects in a cluster, or not these: held, and told what to do."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.api.meta import ObjectRef
from reconciler.kube.objects import SYSTEM_NAMESPACE
from reconciler.placement.names import MOST, RESERVED_NAMESPACES, unusable_name, with_suffix
from tests.support.fleets import document, model, service
from tests.support.manifests import CLUSTER, desired_of, pool

ON: dict[str, Any] = {"placement": {"nodes": ["edge"]}}


def holds(*texts: str) -> dict[str, str]:
    """Held service -> the rule; with what is written about it checked to be words."""
    held = desired_of(*texts).assignment.holds
    return {h.finding.ref.name: h.finding.rule for h in held}


def runs(*texts: str) -> list[str]:
    return [w.ref.name for w in desired_of(*texts).assignment.workloads]


def test_two_services_with_one_objects_name_are_both_held() -> None:
    texts = (pool(), model(), service("a.b", **ON), service("a-b", **ON), service("c", **ON))

    assert holds(*texts) == {"a.b": "ObjectName", "a-b": "ObjectName"}
    assert runs(*texts) == ["c"]


def test_one_name_is_fine_in_two_namespaces_and_in_two_clusters() -> None:
    other = pool("far", kubernetes={"cluster": "elsewhere"})
    lab = document("InferenceService", "a.b", {"modelRef": "gemma", **ON}, namespace="lab")
    texts = (
        *(pool(), other, model(), document("Model", "gemma", {"source": "https://m.test/g.gguf"},
                                           namespace="lab")),
        *(service("a-b", **ON), lab, service("a.b", placement={"nodes": ["far"]})),
    )  # fmt: skip

    assert holds(*texts) == {}


def test_a_published_service_of_a_node_takes_part() -> None:
    node = document("FleetNode", "mac", {"agent": {"clusters": [CLUSTER]}})
    here = service("a.b", placement={"nodes": ["mac"]})

    assert set(holds(pool(), node, model(), here, service("a-b", **ON))) == {"a.b", "a-b"}


@pytest.mark.parametrize("name", ["3b-chat", "a" * (MOST + 1)])
def test_a_name_that_no_service_in_a_cluster_can_have_is_held(name: str) -> None:
    assert holds(pool(), model(), service(name, **ON)) == {name: "ObjectName"}


@pytest.mark.parametrize(
    ("namespace", "name", "field"),
    [
        ("a" * MOST, "a" * MOST, None),
        ("1-a", "chat", None),
        ("a.b", "chat", "metadata.namespace"),
        ("a" * (MOST + 1), "chat", "metadata.namespace"),
        ("kube-system", "chat", "metadata.namespace"),
        ("a.b", "1", "metadata.name"),
    ],
)
def test_what_no_object_can_be_called_is_said_of_the_name_or_the_namespace(
    namespace: str, name: str, field: str | None
) -> None:
    found = unusable_name(ObjectRef("InferenceService", namespace, name))

    assert (found and found[0]) == field


@pytest.mark.parametrize("name", ["3b-chat", "a" * (MOST + 1)])
def test_the_same_name_is_fine_on_a_node_with_an_agent(name: str) -> None:
    node = document("FleetNode", "edge", {"agent": {}})

    assert holds(node, model(), service(name, **ON)) == {}


@pytest.mark.parametrize(
    ("cache", "count", "spec", "is_held"),
    [
        ("claim:models", 2, {"replicas": 2}, True),
        ("pvc:10Gi,RWO", 2, {"replicas": 2}, True),
        ("claim:models", 2, {"autoscaling": {"maxReplicas": 2}}, True),
        ("claim:models", 2, {"replicas": 1}, False),
        ("claim:models", 1, {"replicas": 2}, False),
        ("claim:models,RWX", 2, {"replicas": 2}, False),
        ("ephemeral", 2, {"replicas": 2}, False),
        ("host:/models", 2, {"replicas": 2}, False),  # each node has its own
        ("ephemeral", 2, {"replicas": 2, "modelCache": {"claimName": "ours"}}, True),
        ("claim:ours,RWX", 2, {"replicas": 2, "modelCache": {"claimName": "ours"}}, False),
        ("claim:ours", 2, {"replicas": 2, "modelCache": {"persistence": "Ephemeral"}}, False),
    ],
)
def test_replicas_on_several_nodes_need_a_cache_that_all_can_mount(
    cache: str, count: int, spec: dict[str, Any], is_held: bool
) -> None:
    home = pool(kubernetes={"cluster": CLUSTER, "count": count, "cache": cache})

    policy = document("Fleet", "home", {"hostCaches": ["/models"]})

    found = holds(home, policy, model(), service(**ON, **spec))

    assert found == ({"chat": "CacheNotShared"} if is_held else {})


@pytest.mark.parametrize("allowed", [[], ["/models"], ["/etc/ssl", "/models/below"]])
def test_a_folder_of_a_node_is_mounted_only_where_the_fleet_lists_it(allowed: list[str]) -> None:
    home = pool(kubernetes={"cluster": CLUSTER, "cache": "host:/models"})
    policy = document("Fleet", "home", {"hostCaches": allowed})

    found = holds(home, policy, model(), service(**ON))

    assert found == ({} if "/models" in allowed else {"chat": "HostCacheRefused"})


@pytest.mark.parametrize(
    "folder", ["/etc", "/var/lib/kubelet/pods", "/var", "/root/models", "/proc"]
)
def test_a_folder_of_the_system_is_never_mounted_whatever_the_fleet_lists(folder: str) -> None:
    home = pool(kubernetes={"cluster": CLUSTER, "cache": f"host:{folder}"})
    policy = document("Fleet", "home", {"hostCaches": [folder]})

    assert holds(home, policy, model(), service(**ON)) == {"chat": "HostCacheRefused"}


def test_a_runtime_without_an_image_is_held_until_the_fleet_names_one() -> None:
    folder = model(source="hf://org/gemma-mlx@0123abc")
    texts = (pool(), folder)

    assert holds(*texts, service(runtime="mlx-lm", **ON)) == {"chat": "NodeCapability"}
    assert holds(*texts, service(runtime="mlx-lm", image="registry.lan/mlx:1", **ON)) == {}
    images = document("Fleet", "home", {"images": {"mlx-lm": {"cpu": "registry.lan/mlx:1"}}})
    assert holds(*texts, images, service(runtime="mlx-lm", **ON)) == {}


@pytest.mark.parametrize("source", ["pvc://llms/a.gguf", "image://models.lan/a:1/a.gguf"])
def test_a_model_in_a_volume_of_pods_is_none_for_a_node_with_an_agent(source: str) -> None:
    node, staged = document("FleetNode", "edge", {"agent": {}}), model(source=source)

    assert holds(node, staged, service(**ON)) == {"chat": "NodeCapability"}
    assert holds(pool(), staged, service(**ON)) == {}


def test_a_file_of_the_node_is_no_model_for_pods() -> None:
    texts = (
        pool(),
        document("FleetNode", "mac", {"agent": {}}),
        model(source="file:///srv/m.gguf"),
    )

    assert holds(*texts, service(**ON)) == {"chat": "NodeCapability"}
    assert holds(*texts, service(placement={"nodes": ["mac"]})) == {}


def test_names_that_are_cut_stay_distinct_and_fit() -> None:
    one, two = with_suffix("a" * MOST, "models"), with_suffix("a" * (MOST - 1), "models")

    assert one != two
    assert max(len(one), len(two)) <= MOST
    assert one == f"{'a' * 47}-7d3e74a0-models", "as it was: another name would be another object"
    assert with_suffix("chat", "models") == "chat-models"
    assert with_suffix("a" * 56, "models") == f"{'a' * 56}-models"


@pytest.mark.parametrize("namespace", sorted(RESERVED_NAMESPACES))
def test_a_namespace_with_the_clusters_own_secrets_has_no_services(namespace: str) -> None:
    gemma = document("Model", "gemma", {"source": "https://m.test/g.gguf"}, namespace=namespace)
    chat = document("InferenceService", "chat", {"modelRef": "gemma", **ON}, namespace=namespace)

    assert holds(pool(), gemma, chat) == {"chat": "ObjectName"}
    assert SYSTEM_NAMESPACE in RESERVED_NAMESPACES


@pytest.mark.parametrize("namespace", sorted(RESERVED_NAMESPACES))
def test_a_node_puts_no_service_into_a_namespace_of_its_cluster(namespace: str) -> None:
    gemma = document("Model", "gemma", {"source": "https://m.test/g.gguf"}, namespace=namespace)
    chat = document("InferenceService", "chat", {"modelRef": "gemma"}, namespace=namespace)

    def mac(*clusters: str) -> str:
        return document("FleetNode", "mac", {"agent": {"clusters": clusters}})

    assert holds(mac("prod"), gemma, chat) == {"chat": "ObjectName"}
    assert holds(mac(), gemma, chat) == {}
