"""What a real cluster refuses, delays or never finishes, and who is asked beforehand."""

from __future__ import annotations

import secrets
import time
from typing import Any

import pytest

from reconciler.core.plan import Action, Plan
from reconciler.core.target import Result
from reconciler.kube.apply.objects import apply_objects
from reconciler.kube.apply.server_dry_run import MOST_ALIKE, judged
from reconciler.kube.client.api import ApiServer
from reconciler.kube.objects import (
    ObjectId,
)
from tests.support.cluster import Cluster
from tests.support.fault_proxy import FaultProxy
from tests.support.kube_world import (
    TARGET,
    World,
    autoscaler,
    config_map,
    deployment,
    service,
)
from tests.support.wait import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.e2e]


def judged_plan(world: World) -> Plan:
    objects = world.plan()
    plan = Plan("rev", objects.changes, objects.blocked, (), {}, {})
    return judged(world.api, plan, TARGET, world.live())


def test_one_bad_object_blocks_only_what_depends_on_it(world: World) -> None:
    bad = service(world.namespace, "bad", type="Nonsense")
    world.declare(bad, deployment(world.namespace, "bad"), service="bad")
    world.declare(service(world.namespace), deployment(world.namespace), service="chat")

    outcomes = {
        (o.change.object.kind, o.change.object.name): o for o in world.apply() if o.change.object
    }

    assert outcomes["Service", "bad"].result is Result.FAILED
    assert "spec.type" in outcomes["Service", "bad"].message
    assert outcomes["Deployment", "bad"].result is Result.SKIPPED
    assert "/bad" in outcomes["Deployment", "bad"].message
    assert outcomes["Deployment", "chat"].result is Result.APPLIED


def test_a_server_that_fails_at_one_object_gets_the_others(
    world: World, cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    cluster.apply(_webhook_that_nobody_answers(world.namespace, "bad"))
    request.addfinalizer(
        lambda: cluster.kubectl("delete", "validatingwebhookconfiguration", "nobody", "--wait=0")
    )
    asked = ("create", "configmap", "bad", "-n", world.namespace, "--dry-run=server")
    wait_for(lambda: "failed calling webhook" in cluster.kubectl(*asked, check=False))
    for name in ("bad", "chat", "other"):
        world.declare(config_map(world.namespace, name), service=name)

    outcomes = {o.change.object.name: o for o in world.apply() if o.change.object}

    assert outcomes["bad"].result is Result.FAILED
    assert "failed calling webhook" in outcomes["bad"].message
    assert outcomes["chat"].result is outcomes["other"].result is Result.APPLIED


def _webhook_that_nobody_answers(namespace: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "nobody"},
        "webhooks": [
            {
                "name": "nobody.example.com",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "timeoutSeconds": 1,
                "clientConfig": {"url": "https://127.0.0.1:1/"},
                "matchConditions": [
                    {
                        "name": "one",
                        "expression": f"object.metadata.name == '{name}'"
                        f" && object.metadata.namespace == '{namespace}'",
                    }
                ],
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": ["configmaps"],
                    }
                ],
            }
        ],
    }


def test_the_server_is_asked_what_it_would_refuse_and_nothing_is_changed(world: World) -> None:
    ns = world.namespace
    world.declare(service(ns, type="Nonsense"), config_map(ns), deployment(ns))
    world.declare(service(ns, "other"), service="other")

    plan = judged_plan(world)

    (blocked,) = plan.blocked
    assert blocked.reason == "ObjectRefused"
    assert "spec.type" in blocked.message
    assert len(plan.changes) == 3
    assert world.live() == {}


def test_a_field_that_only_the_server_knows_as_fixed_becomes_a_replacement(world: World) -> None:
    fixed = config_map(world.namespace, a="1") | {"immutable": True}
    world.declare(fixed)
    world.settle()
    world.declare(fixed | {"data": {"a": "2"}})

    (change,) = judged_plan(world).changes

    assert (change.action, change.reason) == (Action.REPLACE, "ImmutableField")
    assert "data" in change.message


def test_of_many_objects_to_make_a_sample_is_asked_about(cluster: Cluster, world: World) -> None:
    for n in range(3 * MOST_ALIKE):
        world.declare(config_map(world.namespace, f"c{n:03}"))
    before = cluster.calls().get(("APPLY", "configmaps"), 0)

    plan = judged_plan(world)

    assert cluster.calls()["APPLY", "configmaps"] - before == MOST_ALIKE
    assert len(plan.changes) == 3 * MOST_ALIKE


def test_each_object_is_asked_about_where_one_of_its_like_is_refused(world: World) -> None:
    for n in range(3 * MOST_ALIKE):
        kind = "Nonsense" if n % 2 else "ClusterIP"
        world.declare(service(world.namespace, f"s{n:03}", type=kind), service=f"s{n:03}")

    plan = judged_plan(world)

    refused = {blocked.ref.name for blocked in plan.blocked}
    assert refused == {f"s{n:03}" for n in range(1, 3 * MOST_ALIKE, 2)}
    assert {change.ref.name for change in plan.changes}.isdisjoint(refused)


def test_drift_is_judged_as_it_would_be_taken_back(cluster: Cluster, world: World) -> None:
    world.declare(deployment(world.namespace))
    world.settle()
    cluster.kubectl("scale", "deploy/chat", "-n", world.namespace, "--replicas=4")

    plan = judged_plan(world)

    assert [(c.action, c.by) for c in plan.changes] == [(Action.DRIFT, "kubectl")]
    assert world.one()["spec"]["replicas"] == 4


def test_a_server_that_asks_for_pauses_gets_them(
    api: ApiServer, cluster: Cluster, world: World
) -> None:
    ns = world.namespace
    world.declare(*(config_map(ns, f"c{i}", a="1") for i in range(20)))
    with FaultProxy(api.grant()) as proxy:
        world.api = proxy.api()
        plan = world.plan()
        proxy.throttle(12, retry_after_s=1)
        began = time.monotonic()

        outcomes = apply_objects(world.api, plan.changes, {}, world.fleet)

        assert {o.result for o in outcomes} == {Result.APPLIED}
        assert time.monotonic() - began >= 1.0
        writes = [method for method, _ in proxy.requests if method == "PATCH"]
        assert len(writes) == 20 + 12


def test_a_server_that_asks_for_too_long_a_pause_is_left(
    api: ApiServer, cluster: Cluster, world: World
) -> None:
    world.declare(config_map(world.namespace, a="1"))
    with FaultProxy(api.grant()) as proxy:
        world.api = proxy.api()
        plan = world.plan()
        proxy.throttle(1, retry_after_s=60)

        (outcome,) = apply_objects(world.api, plan.changes, {}, world.fleet, longest_wait_s=2)

        assert outcome.result is Result.FAILED


def test_after_the_server_is_gone_nothing_more_is_tried(
    api: ApiServer, cluster: Cluster, world: World
) -> None:
    ns = world.namespace
    world.declare(*(config_map(ns, f"c{i}", a="1") for i in range(30)))
    with FaultProxy(api.grant()) as proxy:
        world.api = proxy.api()
        plan = world.plan()
        proxy.refuses = True
        proxy.cut()

        outcomes = apply_objects(world.api, plan.changes, {}, world.fleet, threads=2)

    assert {o.result for o in outcomes} == {Result.FAILED, Result.SKIPPED}
    assert sum(o.result is Result.FAILED for o in outcomes) <= 2
    world.api = api
    world.settle()


def test_unchanged_objects_cost_no_call(api: ApiServer, cluster: Cluster, world: World) -> None:
    ns = world.namespace
    world.declare(deployment(ns), service(ns), config_map(ns, a="b"), autoscaler(ns, "other"))
    world.settle()
    seen = world.live()
    with FaultProxy(api.grant()) as proxy:
        world.api = proxy.api()

        outcomes = apply_objects(world.api, world.plan(seen).changes, seen, world.fleet)

        assert outcomes == ()
        assert proxy.requests == []


def test_an_object_whose_finalizer_hangs_blocks_nobody(world: World) -> None:
    ns = world.namespace
    stuck = config_map(ns, "stuck", a="1") | {"immutable": True}
    stuck["metadata"]["finalizers"] = ["tests.invalid/never"]
    world.declare(stuck, service="stuck")
    world.declare(config_map(ns, "other"))
    world.settle()
    oid = ObjectId("", "ConfigMap", ns, "stuck")
    world.api.delete(oid, uid=world.one(oid)["metadata"]["uid"])
    world.declare(config_map(ns, "other", b="2"))

    outcomes = world.apply()

    assert [o.result for o in outcomes] == [Result.APPLIED]
    (blocked,) = world.plan().blocked
    assert "tests.invalid/never" in blocked.message
    world.api.patch(oid, [{"op": "remove", "path": "/metadata/finalizers"}])
    world.declare(config_map(ns, "stuck", a="1"), service="stuck")
    world.settle()


def test_a_full_quota_is_told_and_blocks_only_its_own(cluster: Cluster, world: World) -> None:
    ns = world.namespace
    cluster.kubectl("create", "quota", "tight", "-n", ns, "--hard=count/services=0")

    def quota() -> bool:
        return "hard" in cluster.json("get", "quota", "tight", "-n", ns)["status"]

    wait_for(quota, "the quota counts")
    world.declare(service(ns), deployment(ns))
    world.declare(deployment(ns, "other"), service="other")

    outcomes = {
        o.change.object.name + o.change.object.kind: o for o in world.apply() if o.change.object
    }

    assert "quota" in outcomes["chatService"].message
    assert outcomes["chatDeployment"].result is Result.SKIPPED
    assert outcomes["otherDeployment"].result is Result.APPLIED


def test_a_namespace_that_ends_fails_its_own_objects_only(cluster: Cluster, world: World) -> None:
    other = cluster.namespace(f"ends-{secrets.token_hex(4)}")
    cluster.apply(config_map(other, "keeps", a="1"))
    patch = '{"metadata":{"finalizers":["tests.invalid/never"]}}'
    cluster.kubectl("patch", "configmap", "keeps", "-n", other, "--type=merge", "-p", patch)
    cluster.kubectl("delete", "namespace", other, "--wait=false")
    world.declare(config_map(other, "new", a="1"), service="new")
    world.declare(config_map(world.namespace, a="1"))

    outcomes = {o.change.ref.name: o for o in world.apply()}

    assert "terminat" in outcomes["new"].message
    assert outcomes["chat"].result is Result.APPLIED


def test_a_namespace_that_nobody_made_is_told_by_the_plan(world: World) -> None:
    world.namespace = "nowhere"
    world.declare(config_map("nowhere", a="1"), service("nowhere"))

    (blocked,) = judged_plan(world).blocked

    assert blocked.message.endswith("kubectl create namespace nowhere")


def test_who_lost_the_lease_in_the_middle_writes_nothing_more(world: World) -> None:
    for n in range(6):
        world.declare(config_map(world.namespace, f"c{n}"), service=f"s{n}")
    answers = iter([None, None, *["another process applies the fleet"] * 100])
    live = world.live()

    outcomes = apply_objects(
        world.api,
        world.plan(live).changes,
        live,
        world.fleet,
        write_refusal=lambda: next(answers),
        threads=1,
    )

    assert [o.result for o in outcomes] == [*[Result.APPLIED] * 2, *[Result.SKIPPED] * 4]
    assert outcomes[-1].message == "another process applies the fleet"
    assert len(world.live()) == 2
