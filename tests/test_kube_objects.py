"""Objects in a real cluster: made, compared, taken back, made anew and removed."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from reconciler.kube.access import open_cluster
from reconciler.kube.applying import apply_objects
from reconciler.kube.client import ApiServer
from reconciler.kube.inventory import (
    ID_LABEL,
    KINDS_ANNOTATION,
    ForeignSet,
    parent_id,
    revision_of,
    set_id,
    write_parent,
)
from reconciler.kube.judging import judged
from reconciler.kube.managed import owned
from reconciler.kube.objects import (
    FLEET_LABEL,
    INPUTS_DIGEST_ANNOTATION,
    RENDER_DIGEST_ANNOTATION,
    SYSTEM_NAMESPACE,
    ObjectId,
    id_of,
)
from reconciler.plan import Action, Plan
from reconciler.planner import Policy
from reconciler.target import Result
from tests.support.cluster import Cluster
from tests.support.fault_proxy import FaultProxy
from tests.support.kube_world import (
    TARGET,
    World,
    autoscaler,
    changed,
    claim,
    config_map,
    deployment,
    service,
)
from tests.support.wait import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.e2e]


@pytest.fixture
def api(cluster: Cluster) -> Iterator[ApiServer]:
    opened = open_cluster("test", "test", kubeconfig=cluster.kubeconfig)
    yield opened
    opened.close()


@pytest.fixture
def world(cluster: Cluster, api: ApiServer) -> World:
    return World(api, cluster.namespace(f"apps-{secrets.token_hex(4)}"))


def live(world: World, oid: ObjectId | None = None) -> dict[str, Any]:
    """An object as it is now; by default the Deployment of chat."""
    found = world.api.get(oid or ObjectId("apps", "Deployment", world.namespace, "chat"))
    assert found is not None
    return found


def test_after_one_apply_there_is_nothing_left_to_do(world: World) -> None:
    world.declare(
        deployment(world.namespace),
        service(world.namespace),
        config_map(world.namespace, a="b"),
        claim(world.namespace),
        autoscaler(world.namespace, "other"),
    )

    world.settle()

    assert world.plan().unchanged == 1
    assert world.plan().changes == ()


def test_a_changed_field_is_shown_and_written_alone(world: World) -> None:
    world.declare(deployment(world.namespace), service(world.namespace))
    world.settle()
    world.declare(changed(deployment(world.namespace), image="engine:2"))

    (change,) = world.plan().changes

    assert (change.action, change.reason) == (Action.UPDATE, "ObjectChanged")
    (field,) = change.fields
    assert field.path == "spec.template.spec.containers[engine].image"
    assert (field.before, field.after, field.forces_restart) == ("engine:1", "engine:2", True)
    world.settle()
    assert live(world)["spec"]["template"]["spec"]["containers"][0]["image"] == "engine:2"


def test_a_field_that_is_dropped_goes(world: World) -> None:
    world.declare(config_map(world.namespace, a="1", b="2"))
    world.settle()
    world.declare(config_map(world.namespace, a="1"))

    world.settle()

    assert live(world, ObjectId("", "ConfigMap", world.namespace, "chat"))["data"] == {"a": "1"}


def test_drift_is_named_and_taken_back_exactly(cluster: Cluster, world: World) -> None:
    world.declare(deployment(world.namespace))
    world.settle()
    cluster.kubectl(
        "set", "resources", "deploy/chat", "-n", world.namespace, "--limits=memory=16Gi"
    )
    cluster.kubectl("annotate", "deploy/chat", "-n", world.namespace, "team=search")

    (change,) = world.plan().changes

    assert (change.action, change.reason) == (Action.DRIFT, "DriftedByOther")
    assert change.by.startswith("kubectl")
    (field,) = change.fields
    assert field.path.endswith("containers[engine].resources.limits.memory")
    assert (field.before, field.after) == ("16Gi", "12288Mi")
    world.settle()
    after = live(world)
    assert after["metadata"]["annotations"]["team"] == "search"
    limits = after["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"memory": "12Gi"}


def test_an_entry_that_somebody_added_is_taken_out(cluster: Cluster, world: World) -> None:
    world.declare(deployment(world.namespace))
    world.settle()
    cluster.kubectl("set", "env", "deploy/chat", "-n", world.namespace, "DEBUG=1", "A_FIRST=x")

    (change,) = world.plan().changes

    assert change.action is Action.DRIFT
    assert {f.path.partition("containers")[2] for f in change.fields} == {
        "[engine].env[DEBUG]",
        "[engine].env[A_FIRST]",
    }
    world.settle()
    container = live(world)["spec"]["template"]["spec"]["containers"][0]
    assert [entry["name"] for entry in container["env"]] == ["LANG", "EMPTY"]


def test_a_sidecar_and_its_volume_that_somebody_added_go_together(
    cluster: Cluster, world: World
) -> None:
    world.declare(deployment(world.namespace))
    world.settle()
    spec = {
        "volumes": [{"name": "spy", "emptyDir": {}}],
        "containers": [
            {"name": "spy", "image": "spy", "volumeMounts": [{"name": "spy", "mountPath": "/s"}]},
            {"name": "engine", "volumeMounts": [{"name": "spy", "mountPath": "/spy"}]},
        ],
    }
    patch = json.dumps({"spec": {"template": {"spec": spec}}})
    cluster.kubectl("patch", "deploy", "chat", "-n", world.namespace, "-p", patch)

    world.settle()

    pod = live(world)["spec"]["template"]["spec"]
    assert [c["name"] for c in pod["containers"]] == ["engine"]
    assert [v["name"] for v in pod["volumes"]] == ["cache"]
    assert [m["name"] for m in pod["containers"][0]["volumeMounts"]] == ["cache"]


def test_a_field_that_somebody_removed_comes_back(cluster: Cluster, world: World) -> None:
    world.declare(deployment(world.namespace))
    world.settle()
    cluster.kubectl("set", "env", "deploy/chat", "-n", world.namespace, "LANG-")

    (change,) = world.plan().changes

    assert change.action is Action.DRIFT
    world.settle()
    env = live(world)["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "LANG", "value": "C"} in env


def test_drift_is_only_reported_where_the_fleet_says_so(cluster: Cluster, world: World) -> None:
    world.policy = Policy(drift_enforced=False)
    world.declare(deployment(world.namespace))
    world.settle()
    cluster.kubectl("scale", "deploy/chat", "-n", world.namespace, "--replicas=4")
    cluster.kubectl("set", "env", "deploy/chat", "-n", world.namespace, "DEBUG=1")
    world.declare(changed(deployment(world.namespace), image="engine:2"))

    outcomes = world.apply()

    assert [o.change.action for o in outcomes] == [Action.UPDATE]
    after = live(world)
    assert after["spec"]["replicas"] == 4
    container = after["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "engine:2"
    assert {"name": "DEBUG", "value": "1"} in container["env"]
    (change,) = world.plan().changes
    assert (change.action, change.reason) == (Action.DRIFT, "DriftReported")
    assert {f.path for f in change.fields} >= {"spec.replicas"}
    world.policy = Policy()
    world.settle()
    assert live(world)["spec"]["replicas"] == 2


def test_a_field_that_another_manager_had_first_is_a_conflict_with_its_name(
    cluster: Cluster, world: World
) -> None:
    world.declare(deployment(world.namespace))
    world.settle()
    patch = '{"spec":{"minReadySeconds":7}}'
    cluster.kubectl(
        "patch", "deploy", "chat", "-n", world.namespace, "-p", patch, "--field-manager=ops"
    )
    world.declare(changed(deployment(world.namespace, minReadySeconds=3), image="engine:2"))

    plan = world.plan()

    (change,), (blocked,) = plan.changes, plan.blocked
    assert [f.path for f in change.fields] == ["spec.template.spec.containers[engine].image"]
    assert blocked.reason == "FieldConflict"
    assert "spec.minReadySeconds is 7 by ops, declared is 3" in blocked.message
    world.settle()
    assert live(world)["spec"]["minReadySeconds"] == 7
    assert world.plan().blocked == (blocked,)


def test_a_conflict_is_forced_for_the_field_that_the_annotation_names(
    cluster: Cluster, world: World
) -> None:
    world.declare(deployment(world.namespace))
    world.settle()
    patch = '{"spec":{"minReadySeconds":7,"revisionHistoryLimit":5}}'
    cluster.kubectl(
        "patch", "deploy", "chat", "-n", world.namespace, "-p", patch, "--field-manager=ops"
    )
    wanted = deployment(world.namespace, minReadySeconds=3, revisionHistoryLimit=2)
    wanted["metadata"]["annotations"] = {
        "inference.llmkube.dev/force-fields": "spec.minReadySeconds"
    }
    world.declare(wanted)

    world.settle()

    spec = live(world)["spec"]
    assert (spec["minReadySeconds"], spec["revisionHistoryLimit"]) == (3, 5)


def test_an_object_that_is_not_ours_is_never_touched(cluster: Cluster, world: World) -> None:
    foreign = config_map(world.namespace, mine="1")
    cluster.apply(foreign)
    world.declare(config_map(world.namespace, ours="1"))

    outcomes = world.apply()  # no watch of ours sees it: it has no label of ours

    assert [o.result for o in outcomes] == [Result.FAILED]
    assert "kubectl" in outcomes[0].message
    oid = id_of(foreign)
    assert live(world, oid)["data"] == {"mine": "1"}
    (blocked,) = world.plan({oid: live(world, oid)}).blocked
    assert blocked.reason == "NotOurs"
    assert "kubectl" in blocked.message


def test_two_fleets_do_not_fight_over_an_object(world: World) -> None:
    world.declare(config_map(world.namespace, of="home"))
    world.settle()
    other = World(world.api, world.namespace, fleet="lab")
    other.declare(config_map(world.namespace, of="lab"))

    (outcome,) = other.apply()

    assert outcome.result is Result.FAILED
    oid = ObjectId("", "ConfigMap", world.namespace, "chat")
    assert live(world, oid)["metadata"]["labels"][FLEET_LABEL] == "home"
    (blocked,) = other.plan({oid: live(world, oid)}).blocked
    assert "fleet home" in blocked.message
    assert world.plan().changes == ()


def test_an_immutable_field_makes_the_object_anew(world: World) -> None:
    world.declare(deployment(world.namespace))
    world.settle()
    uid = live(world)["metadata"]["uid"]
    wanted = deployment(world.namespace)
    wanted["spec"]["selector"]["matchLabels"] = {"app": "chat", "v": "2"}
    wanted["spec"]["template"]["metadata"]["labels"] = {"app": "chat", "v": "2"}
    world.declare(wanted)

    (change,) = world.plan().changes

    assert (change.action, change.reason) == (Action.REPLACE, "ImmutableField")
    assert "spec.selector" in change.message
    world.settle()
    assert live(world)["metadata"]["uid"] != uid


def test_a_removed_object_goes_and_only_the_one_that_was_seen(
    cluster: Cluster, world: World
) -> None:
    world.declare(
        config_map(world.namespace, "a", x="1"),
        config_map(world.namespace, "b", x="1"),
        config_map(world.namespace, "c"),
    )
    world.settle()
    world.drop("ConfigMap", "a")
    world.drop("ConfigMap", "b")
    seen = world.live()
    plan = world.plan(seen)
    cluster.kubectl("delete", "configmap", "a", "-n", world.namespace)
    cluster.apply(config_map(world.namespace, "a", somebody="else"))
    cluster.kubectl("label", "configmap", "b", "-n", world.namespace, f"{FLEET_LABEL}-")

    outcomes = apply_objects(world.api, plan.changes, seen, world.fleet)

    assert {o.change.action for o in outcomes} == {Action.DELETE}
    assert live(world, ObjectId("", "ConfigMap", world.namespace, "a"))["data"] == {
        "somebody": "else"
    }
    assert live(world, ObjectId("", "ConfigMap", world.namespace, "b"))["data"] == {"x": "1"}


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


def test_replicas_never_fall_when_the_autoscaler_takes_over(cluster: Cluster, world: World) -> None:
    world.declare(deployment(world.namespace, replicas=3))
    world.settle()
    seen = [3]
    world.desired.clear()
    world.declare(deployment(world.namespace, replicas=None), autoscaler(world.namespace, low=2))

    world.settle()
    seen.append(live(world)["spec"]["replicas"])
    cluster.kubectl(
        "scale", "deploy/chat", "-n", world.namespace, "--replicas=5"
    )  # as an autoscaler does
    seen.append(live(world)["spec"]["replicas"])
    world.settle()
    seen.append(live(world)["spec"]["replicas"])

    assert seen == [3, 3, 5, 5]
    assert "replicas" not in owned(live(world))["spec"]


def test_replicas_are_ours_again_once_the_autoscaler_goes(world: World) -> None:
    world.declare(deployment(world.namespace, replicas=3))
    world.settle()
    world.desired.clear()
    world.declare(deployment(world.namespace, replicas=None), autoscaler(world.namespace, low=2))
    world.settle()
    world.desired.clear()
    world.declare(deployment(world.namespace, replicas=4))

    world.settle()

    assert live(world)["spec"]["replicas"] == 4
    assert owned(live(world))["spec"]["replicas"] == 4


def test_what_an_autoscaler_set_is_taken_back_once_it_goes(cluster: Cluster, world: World) -> None:
    world.declare(deployment(world.namespace, replicas=None), autoscaler(world.namespace, low=3))
    world.settle()
    wait_for(lambda: live(world)["spec"]["replicas"] == 3, "the autoscaler acts", timeout_s=60)
    world.desired.clear()
    world.declare(deployment(world.namespace, replicas=2))

    world.settle()

    assert live(world)["spec"]["replicas"] == 2
    assert owned(live(world))["spec"]["replicas"] == 2


def test_a_service_that_was_switched_off_wakes_under_its_autoscaler(world: World) -> None:
    world.declare(deployment(world.namespace, replicas=0), autoscaler(world.namespace, low=2))
    world.settle()
    world.declare(deployment(world.namespace, replicas=None))

    world.settle()

    wait_for(lambda: live(world)["spec"]["replicas"] == 2, "the autoscaler acts", timeout_s=60)


def test_what_a_controller_sets_is_shown_and_left(cluster: Cluster, world: World) -> None:
    world.declare(deployment(world.namespace, replicas=1))
    world.settle()
    cluster.apply(autoscaler(world.namespace, low=3))  # somebody's own
    wait_for(lambda: live(world)["spec"]["replicas"] == 3, "the autoscaler acts", timeout_s=60)

    (change,) = world.plan().changes

    assert (change.reason, change.by) == ("DriftShown", "kube-controller-manager")
    assert world.apply() == ()


def test_a_fight_is_shown_and_not_fought(cluster: Cluster, world: World) -> None:
    world.declare(deployment(world.namespace))
    world.settle()
    cluster.kubectl("scale", "deploy/chat", "-n", world.namespace, "--replicas=4")
    oid = ObjectId("apps", "Deployment", world.namespace, "chat")
    world.resting = {(oid, "spec.replicas"): "they and we take it from each other"}

    (change,) = world.plan().changes

    assert (change.reason, change.message) == ("Fight", "they and we take it from each other")
    assert world.apply() == ()
    assert live(world)["spec"]["replicas"] == 4


def test_a_claim_is_held_alone_and_its_siblings_go(world: World) -> None:
    world.declare(claim(world.namespace), config_map(world.namespace))
    world.declare(config_map(world.namespace, "other"), service="other")
    world.settle()
    world.drop("PersistentVolumeClaim", "chat")
    world.drop("ConfigMap", "chat")

    outcomes = world.apply()

    assert [o.change.object and o.change.object.kind for o in outcomes] == ["ConfigMap"]
    (blocked,) = world.plan().blocked
    assert blocked.reason == "Guarded"
    assert blocked.token is not None
    confirmed = replace(world.policy.prune, confirmed=frozenset({blocked.token}))
    world.policy = replace(world.policy, prune=confirmed)
    world.settle()


def judged_plan(world: World) -> Plan:
    objects = world.plan()
    plan = Plan("rev", objects.changes, objects.blocked, (), {}, {})
    return judged(world.api, plan, TARGET, world.live())


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


def test_drift_is_judged_as_it_would_be_taken_back(cluster: Cluster, world: World) -> None:
    world.declare(deployment(world.namespace))
    world.settle()
    cluster.kubectl("scale", "deploy/chat", "-n", world.namespace, "--replicas=4")

    plan = judged_plan(world)

    assert [(c.action, c.by) for c in plan.changes] == [(Action.DRIFT, "kubectl")]
    assert live(world)["spec"]["replicas"] == 4


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
    world.api.delete(oid, uid=live(world, oid)["metadata"]["uid"])
    world.declare(config_map(ns, "other", b="2"))

    outcomes = world.apply()

    assert [o.result for o in outcomes] == [Result.APPLIED]
    (blocked,) = world.plan().blocked
    assert "tests.invalid/never" in blocked.message
    world.api.patch(oid, [{"op": "remove", "path": "/metadata/finalizers"}])
    world.settle()


def test_a_full_quota_is_told_and_blocks_only_its_own(cluster: Cluster, world: World) -> None:
    ns = world.namespace
    cluster.kubectl("create", "quota", "tight", "-n", ns, "--hard=count/services=0")

    def quota() -> bool:
        return "hard" in cluster.json("get", "quota", "tight", "-n", ns)["status"]

    wait_for(quota, "the quota counts", timeout_s=30)
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
    free = '[{"op":"remove","path":"/metadata/finalizers"}]'
    cluster.kubectl("patch", "configmap", "keeps", "-n", other, "--type=json", "-p", free)


def test_a_set_has_the_identity_that_kubectl_gives_it_and_of_kubectls_we_keep_off(
    cluster: Cluster, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECTL_APPLYSET", "true")
    cluster.kubectl("create", "namespace", SYSTEM_NAMESPACE, check=False)
    text = json.dumps(config_map(SYSTEM_NAMESPACE, "member", a="1"))
    cluster.kubectl(
        *("apply", "-n", SYSTEM_NAMESPACE, "--prune", "--applyset=configmap/fleet-theirs"),
        *("-f", "-"),
        text=text,
    )

    theirs = live(world, parent_id("theirs"))

    assert theirs["metadata"]["labels"][ID_LABEL] == set_id("theirs")
    with pytest.raises(ForeignSet, match="kubectl"):
        write_parent(world.api, "theirs", theirs, (), None)


def test_the_parent_names_kinds_and_spaces_before_and_the_revision_after(
    api: ApiServer, cluster: Cluster, world: World
) -> None:
    cluster.kubectl("create", "namespace", SYSTEM_NAMESPACE, check=False)
    members = [ObjectId("apps", "Deployment", world.namespace, "chat")]

    first = write_parent(world.api, "home", None, members, None)
    second = write_parent(world.api, "home", first, members, "abc")

    assert (revision_of(first), revision_of(second)) == (None, "abc")
    annotations = live(world, parent_id("home"))["metadata"]["annotations"]
    assert annotations[KINDS_ANNOTATION] == "Deployment.apps"
    with FaultProxy(api.grant()) as proxy:
        write_parent(proxy.api(), "home", second, members, "abc")
        assert proxy.requests == []


def test_a_namespace_that_nobody_made_is_told_by_the_plan(world: World) -> None:
    world.namespace = "nowhere"
    world.declare(config_map("nowhere", a="1"), service("nowhere"))

    (blocked,) = judged_plan(world).blocked

    assert blocked.message.endswith("kubectl create namespace nowhere")


def test_drift_in_a_template_that_waits_comes_back_and_nothing_else_of_it(
    cluster: Cluster, world: World
) -> None:
    def rendered(image: str, render: str) -> dict[str, Any]:
        made = changed(deployment(world.namespace), image=image)
        digests = {INPUTS_DIGEST_ANNOTATION: "i", RENDER_DIGEST_ANNOTATION: render}
        made["metadata"]["annotations"] = digests
        return made

    world.declare(rendered("engine:1", "r1"))
    world.settle()
    cluster.kubectl("set", "resources", "deploy/chat", "-n", world.namespace, "--limits=memory=1Gi")
    cluster.kubectl("set", "env", "deploy/chat", "-n", world.namespace, "LANG-")
    world.declare(rendered("engine:2", "r2"))

    plan = world.plan()

    assert {c.action for c in plan.changes} == {Action.DRIFT, Action.DEFERRED}
    world.settle()
    container = live(world)["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "engine:1"
    assert container["resources"]["limits"] == {"memory": "12Gi"}
    assert {"name": "LANG", "value": "C"} in container["env"]
