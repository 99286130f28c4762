"""What runs in a cluster, and what is read beside our objects: pods, nodes and claims."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from reconciler.api.fleetnode import FleetNode
from reconciler.api.meta import HOLD_ANNOTATION, PRUNE_ANNOTATION
from reconciler.core.observation import Instance
from reconciler.kube.client.errors import ClusterError
from reconciler.kube.informer.strangers import Strangers
from reconciler.kube.objects import INPUTS_ANNOTATION, MANAGER, NEEDS_ANNOTATION, Manifest, id_of
from reconciler.kube.render.labels import BENCHMARK, COMPONENT_LABEL
from reconciler.kube.running.absent_claims import absent_claims
from reconciler.kube.running.claims import shared_unsaid
from reconciler.kube.running.instances import instances
from reconciler.kube.running.pod_reader import NO_PODS, PodReader, PodsFound
from reconciler.kube.running.pod_source import ListedPods
from reconciler.kube.running.pool_nodes import PoolNodes, selecting_none
from reconciler.loop.desired import Desired
from tests.support.builders import GIB, need, ref, workload
from tests.support.cluster_views import (
    CLUSTER,
    deployment,
    desired,
    fleet,
    live_service,
    model,
    pod,
    pool,
    service_ref,
)
from tests.support.few_objects import FewObjects

FLEET = "home"
CHAT, BASE = service_ref(), service_ref("base")


@pytest.fixture
def cluster() -> Iterator[FewObjects]:
    with FewObjects(cluster=CLUSTER) as server:
        yield server


def named(name: str, of: str = "chat", **status: Any) -> Manifest:
    made = pod(of, **status)
    made["metadata"]["name"] = name
    return made


def names(found: PodsFound) -> Mapping[str, list[str]]:
    return {ref.name: [p["metadata"]["name"] for p in pods] for ref, pods in found.troubled.items()}


def test_pods_are_read_only_of_services_that_are_not_ready_or_leave(cluster: FewObjects) -> None:
    measures = named("bench-1")
    measures["metadata"]["labels"] |= {COMPONENT_LABEL: BENCHMARK}
    cluster.objects = [named("a"), named("b"), named("c", "base"), measures]
    reader = PodReader(ListedPods(cluster.api))

    nothing, chat = reader.find(FLEET, [], []), reader.find(FLEET, [CHAT], [])

    assert nothing is NO_PODS
    assert names(chat) == {"chat": ["a", "b"]}
    assert chat.left == {}
    assert len(cluster.asked) == 1
    assert "(chat)" in cluster.asked[0][1]


def test_what_leaves_is_asked_for_until_its_last_pod_has_ended(cluster: FewObjects) -> None:
    reader = PodReader(ListedPods(cluster.api))
    reader.leave([CHAT])
    said = []
    for count in (5, 4, 3, 1, 0):
        ended = [named("done", phase="Succeeded"), named("failed", phase="Failed")]
        cluster.objects = [*ended, *(named(f"p{n}", phase="Running") for n in range(count))]
        said.append(reader.find(FLEET, [], []).left.get(CHAT))

    assert said == [
        "still there: pods p0, p1, p2 and 2 more",
        "still there: pods p0, p1, p2 and 1 more",
        "still there: pods p0, p1, p2",
        "still there: pod p0",
        None,
    ]
    cluster.asked.clear()
    assert reader.find(FLEET, [], []) is NO_PODS
    assert cluster.asked == [], "nobody leaves any more"


def test_what_leaves_and_is_wanted_again_is_not_waited_for(cluster: FewObjects) -> None:
    cluster.objects = [named("a"), named("c", "base")]
    reader = PodReader(ListedPods(cluster.api))
    reader.leave([CHAT])
    reader.leave([BASE])

    found = reader.find(FLEET, [], [CHAT])

    assert list(found.left) == [BASE]
    assert found.troubled == {}


def test_a_cluster_that_does_not_answer_may_still_have_what_leaves(cluster: FewObjects) -> None:
    reader = PodReader(ListedPods(cluster.api))
    reader.leave([CHAT])
    cluster.status = 500

    (said,) = reader.find(FLEET, [], []).left.values()

    assert said.startswith("perhaps still there: ")
    cluster.status = 403
    assert reader.find(FLEET, [], []) is NO_PODS, "who may not see pods waits for none"
    cluster.status = 200
    cluster.asked.clear()
    assert reader.find(FLEET, [], []) is NO_PODS
    assert cluster.asked == []


@pytest.mark.parametrize(("count", "in_selector"), [(50, True), (51, False)])
def test_pods_of_many_services_are_asked_for_without_their_names(
    cluster: FewObjects, count: int, in_selector: bool
) -> None:
    PodReader(ListedPods(cluster.api)).find(FLEET, [service_ref(f"s{n}") for n in range(count)], [])

    assert (" in (" in cluster.asked[0][1]) == in_selector


def wanted(**spec: Any) -> Desired:
    return desired(fleet(chat={}) | {"l4.yaml": pool(**spec)})


GPU = {"kubernetes": {"cluster": CLUSTER, "nodeSelector": {"gpu": "l4", "arch": "amd64"}}}
GPU_NODE = {
    "kind": "Node",
    "metadata": {"name": "one", "labels": {"gpu": "l4", "arch": "amd64", "zone": "a"}},
}


def test_a_pool_that_selects_no_node_is_named_with_what_it_selects(cluster: FewObjects) -> None:
    now = [0.0]
    nodes = PoolNodes(cluster.api, lambda: now[0])
    workloads = wanted(**GPU).assignment.workloads

    alone, again = nodes.lacking(workloads), nodes.lacking(workloads)
    asked = len(cluster.asked)
    cluster.objects = [GPU_NODE]
    now[0] = 59.0
    soon = nodes.lacking(workloads)
    now[0] = 60.0
    later = nodes.lacking(workloads)

    assert alone == again == soon
    assert alone == (
        "no node there has what l4 selects (arch=amd64,gpu=l4): pods wait until one does"
    )
    assert asked == 1
    assert later == ""
    assert len(cluster.asked) == 2


def test_pools_without_a_selector_and_clusters_that_do_not_say_hold_up_nothing(
    cluster: FewObjects,
) -> None:
    assert PoolNodes(cluster.api).lacking(wanted().assignment.workloads) == ""
    assert cluster.asked == []
    for status, body in ((403, None), (500, None), (200, {"page": "log in"}), (200, ["x"])):
        cluster.status, cluster.body = status, body
        assert PoolNodes(cluster.api).lacking(wanted(**GPU).assignment.workloads) == ""


@pytest.mark.parametrize(
    ("spec", "objects", "found"),
    [
        (GPU, [], ["no node of cluster prod has arch=amd64,gpu=l4: pods wait until one does"]),
        (GPU, [GPU_NODE], []),
        ({}, [], []),
        ({"kubernetes": {**GPU["kubernetes"], "cluster": "another"}}, [], []),
    ],
    ids=["none", "one", "any will do", "of another cluster"],
)
def test_a_check_names_each_pool_of_its_cluster_that_selects_no_node(
    cluster: FewObjects, spec: Mapping[str, Any], objects: list[Manifest], found: list[str]
) -> None:
    cluster.objects = objects
    nodes = wanted(**spec).fleet.all(FleetNode)

    said = list(selecting_none(cluster.api, nodes))

    assert [each.message for each in said] == found
    assert {each.field for each in said} <= {"spec.kubernetes.nodeSelector"}


def test_a_check_of_nodes_by_who_may_not_see_them_says_so(cluster: FewObjects) -> None:
    nodes = wanted(**GPU).fleet.all(FleetNode)
    cluster.body = {"page": "log in"}

    with pytest.raises(ClusterError, match="something else than a list of Nodes"):
        list(selecting_none(cluster.api, nodes))


def claim(*modes: str, name: str = "models") -> Manifest:
    metadata = {"name": name, "namespace": "default"}
    spec = {"accessModes": modes}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": spec,
    }


SHARED = (
    "several nodes can mount claim models of namespace default (ReadWriteMany), and only one pod at"
    " a time is given it: write `cache: claim:models,RWX`, and a Job fetches each model once for"
    " all"
)


@pytest.mark.parametrize(
    ("cache", "where", "claims", "found"),
    [
        ("claim:models", CLUSTER, [claim("ReadWriteOnce", "ReadWriteMany")], [SHARED]),
        ("claim:models", CLUSTER, [claim("ReadWriteOnce")], []),
        ("claim:models", CLUSTER, [claim("ReadWriteMany", name="others")], []),
        ("claim:models", CLUSTER, [], []),
        ("claim:models", "another", [claim("ReadWriteMany")], []),
        ("claim:models,RWX", CLUSTER, [claim("ReadWriteMany")], []),
        ("pvc:10Gi", CLUSTER, [claim("ReadWriteMany")], []),
        ("ephemeral", CLUSTER, [claim("ReadWriteMany")], []),
    ],
)
def test_a_claim_that_many_nodes_could_mount_is_said_where_the_fleet_says_one(
    cluster: FewObjects, cache: str, where: str, claims: list[Manifest], found: list[str]
) -> None:
    cluster.objects = claims
    want = wanted(kubernetes={"cluster": where, "cache": cache, "count": 2})

    said = list(shared_unsaid(cluster.api, want.fleet.all(FleetNode), want.assignment.workloads))

    assert [each.message for each in said] == found


def test_a_claim_that_may_not_be_read_is_not_judged(cluster: FewObjects) -> None:
    cluster.status = 403
    want = wanted(kubernetes={"cluster": CLUSTER, "cache": "claim:models", "count": 2})

    nodes, workloads = want.fleet.all(FleetNode), want.assignment.workloads
    assert list(shared_unsaid(cluster.api, nodes, workloads)) == []
    assert list(shared_unsaid(cluster.api, nodes, ())) == []


@pytest.mark.parametrize(
    ("source", "cache", "there", "absent"),
    [
        ("pvc://models/a.gguf", {}, ["models"], ""),
        ("pvc://models/a.gguf", {}, ["others"], "models"),
        ("hf://org/a/a.gguf", {"claimName": "models"}, ["models"], ""),
        ("hf://org/a/a.gguf", {"claimName": "models"}, [], "models"),
        ("pvc://models/a.gguf", {"claimName": "others"}, [], "models"),
        ("hf://org/a/a.gguf", {}, [], ""),
    ],
)
def test_a_claim_that_a_service_names_has_to_be_there(
    cluster: FewObjects, source: str, cache: dict[str, str], there: list[str], absent: str
) -> None:
    cluster.objects = [claim("ReadWriteOnce", name=name) for name in there]
    want = naming(source, cache)

    found = absent_claims(want, f"cluster/{CLUSTER}", (), Strangers(cluster.api, ()))

    assert found == ({ref("chat"): absent} if absent else {})


def naming(source: str, cache: dict[str, str]) -> Desired:
    return desired(fleet(chat={"modelCache": cache}) | {"model.yaml": model(source=source)})


def test_what_may_not_be_read_is_not_absent(cluster: FewObjects) -> None:
    cluster.status = 403
    want = naming("pvc://models/a.gguf", {})

    assert absent_claims(want, f"cluster/{CLUSTER}", (), Strangers(cluster.api, ())) == {}


WANT = workload("chat", needs=need(3 * GIB))
INPUTS = {INPUTS_ANNOTATION: json.dumps(WANT.inputs)}


def running(document: Mapping[str, str] | None = None, /, **metadata: Any) -> Instance:
    """What runs by a Deployment with this metadata, beside a document with these annotations."""
    live, stated = deployment(), live_service()
    live["metadata"] |= metadata
    stated["metadata"]["annotations"] = document
    (found,) = instances("t", {id_of(o): o for o in (live, stated)}, {CHAT: WANT}, {})
    return found


def set_by(manager: str, annotation: str) -> list[dict[str, Any]]:
    fields = {"f:metadata": {"f:annotations": {f"f:{annotation}": {}}}}
    return [{"manager": manager, "operation": "Apply", "fieldsV1": fields}]


@pytest.mark.parametrize(
    ("document", "metadata", "words"),
    [
        (None, {}, {}),
        (None, {"annotations": INPUTS}, {}),
        (None, {"annotations": {HOLD_ANNOTATION: "by me"}}, {"hold": "by me"}),
        ({PRUNE_ANNOTATION: "disabled"}, {}, {"prune": "disabled"}),
        ({PRUNE_ANNOTATION: "disabled"}, {"annotations": {HOLD_ANNOTATION: "by me"}},
         {"hold": "by me", "prune": "disabled"}),
        ({HOLD_ANNOTATION: "both"}, {"annotations": {HOLD_ANNOTATION: "here"}}, {"hold": "here"}),
        (None, {"annotations": {HOLD_ANNOTATION: "of the fleet"},
                "managedFields": set_by(MANAGER, HOLD_ANNOTATION)}, {}),
        (None, {"annotations": {HOLD_ANNOTATION: "by me"},
                "managedFields": set_by("kubectl", HOLD_ANNOTATION)}, {"hold": "by me"}),
    ],
    ids=["nobody", "another word", "a Deployment", "a document", "either", "both", "we", "kubectl"],
)  # fmt: skip
def test_what_a_person_wrote_on_a_document_or_its_deployment_counts(
    document: Mapping[str, str] | None, metadata: Mapping[str, Any], words: Mapping[str, str]
) -> None:
    assert running(document, **metadata).by_hand == words


@pytest.mark.parametrize(
    ("annotations", "gib"),
    [
        (INPUTS | {NEEDS_ANNOTATION: f'{{"host": [{5 * GIB}, {9 * GIB}]}}'}, [5]),
        (INPUTS, [3]),  # as it is wanted now, since it was made from the same
        (INPUTS | {NEEDS_ANNOTATION: '{"host": "much"}'}, [3]),
        ({INPUTS_ANNOTATION: "{}"}, []),
        ({INPUTS_ANNOTATION: "{}", NEEDS_ANNOTATION: "[5]"}, []),
    ],
)
def test_a_pod_has_the_memory_that_it_was_sized_for(
    annotations: Mapping[str, str], gib: list[int]
) -> None:
    assert [n.bytes // GIB for n in running(annotations=annotations).needs] == gib


@pytest.mark.parametrize(
    ("inputs", "endpoint"), [({"port": 80}, "http://chat.default.svc:80"), ({}, None)]
)
def test_what_runs_answers_at_its_service_in_the_cluster(
    inputs: Mapping[str, Any], endpoint: str | None
) -> None:
    found = running(annotations={INPUTS_ANNOTATION: json.dumps(inputs)})

    assert (found.endpoint, found.port) == (endpoint, inputs.get("port"))
