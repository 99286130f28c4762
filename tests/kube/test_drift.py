"""What others change in a cluster, on a real one: named, taken back exactly, or left."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reconciler.core.plan import Action
from reconciler.core.planner import Policy
from reconciler.core.target import Result
from reconciler.kube.diff.managed import owned
from reconciler.kube.objects import (
    FLEET_LABEL,
    INPUTS_DIGEST_ANNOTATION,
    RENDER_DIGEST_ANNOTATION,
    ObjectId,
)
from tests.support.cluster import Cluster
from tests.support.kube_world import (
    World,
    autoscaler,
    changed,
    config_map,
    deployment,
)
from tests.support.wait import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.e2e]


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
    after = world.one()
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
    container = world.one()["spec"]["template"]["spec"]["containers"][0]
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

    pod = world.one()["spec"]["template"]["spec"]
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
    env = world.one()["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "LANG", "value": "C"} in env


_SELECTED = "spec.template.spec.nodeSelector"


def _on(namespace: str, **nodes: str) -> dict[str, Any]:
    made = deployment(namespace)
    made["spec"]["template"]["spec"]["nodeSelector"] = nodes
    return made


def _select(cluster: Cluster, world: World, nodes: dict[str, str | None] | None) -> None:
    patch = json.dumps({"spec": {"template": {"spec": {"nodeSelector": nodes}}}})
    cluster.kubectl("patch", "deploy", "chat", "-n", world.namespace, "-p", patch)


@pytest.mark.parametrize(
    ("declared", "edit"),
    [
        ({"disk": "ssd"}, {"zone": "a"}),
        ({"disk": "ssd"}, {"node-role.kubernetes.io/x": ""}),
        ({"disk": "ssd"}, {"disk": "hdd"}),
        ({"disk": "ssd"}, None),
        ({"gpu": ""}, None),
        ({"gpu": "", "disk": "ssd"}, {"gpu": None}),
    ],
    ids=["key", "empty", "value", "gone", "empty-gone", "one-gone"],
)
def test_a_value_that_is_one_piece_is_taken_back_whole(
    cluster: Cluster, world: World, declared: dict[str, str], edit: dict[str, str | None] | None
) -> None:
    world.declare(_on(world.namespace, **declared))
    world.settle()
    _select(cluster, world, edit)

    (change,) = world.plan().changes

    assert change.action is Action.DRIFT
    assert all(field.path.startswith(_SELECTED) for field in change.fields)
    world.settle()
    assert world.one()["spec"]["template"]["spec"]["nodeSelector"] == declared


def test_a_value_that_is_one_piece_is_still_ours_where_it_is_to_have_other_keys(
    cluster: Cluster, world: World
) -> None:
    world.declare(_on(world.namespace, disk="ssd"))
    world.settle()
    _select(cluster, world, {"zone": "a"})
    world.declare(_on(world.namespace, gpu="l4"))

    (change,) = world.plan().changes

    assert [(field.path, field.after) for field in change.fields] == [(_SELECTED, {"gpu": "l4"})]
    world.settle()
    assert world.one()["spec"]["template"]["spec"]["nodeSelector"] == {"gpu": "l4"}


def test_a_value_that_is_one_piece_and_was_never_ours_is_left_and_then_a_conflict(
    cluster: Cluster, world: World
) -> None:
    world.declare(deployment(world.namespace))
    world.settle()
    _select(cluster, world, {"zone": "a"})

    assert world.plan().changes == ()
    world.declare(_on(world.namespace, disk="ssd"))
    (blocked,) = world.plan().blocked
    assert blocked.reason == "FieldConflict"
    assert f"{_SELECTED} is " in blocked.message
    assert world.apply() == ()


def test_an_empty_text_that_somebody_removed_comes_back(cluster: Cluster, world: World) -> None:
    world.declare(config_map(world.namespace, empty="", other="x"))
    world.settle()
    patch = '{"data":{"empty":null}}'
    cluster.kubectl("patch", "cm", "chat", "-n", world.namespace, "--type=merge", "-p", patch)

    (change,) = world.plan().changes

    assert change.action is Action.DRIFT
    world.settle()
    live = world.one(ObjectId("", "ConfigMap", world.namespace, "chat"))
    assert live["data"] == {"empty": "", "other": "x"}


def test_drift_is_only_reported_where_the_fleet_says_so(cluster: Cluster, world: World) -> None:
    world.policy = Policy(drift_enforced=False)
    world.declare(deployment(world.namespace))
    world.settle()
    cluster.kubectl("scale", "deploy/chat", "-n", world.namespace, "--replicas=4")
    cluster.kubectl("set", "env", "deploy/chat", "-n", world.namespace, "DEBUG=1")
    world.declare(changed(deployment(world.namespace), image="engine:2"))

    outcomes = world.apply()

    assert [o.change.action for o in outcomes] == [Action.UPDATE]
    after = world.one()
    assert after["spec"]["replicas"] == 4
    container = after["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "engine:2"
    assert {"name": "DEBUG", "value": "1"} in container["env"]
    (change,) = world.plan().changes
    assert (change.action, change.reason) == (Action.DRIFT, "DriftReported")
    assert {f.path for f in change.fields} >= {"spec.replicas"}
    world.policy = Policy()
    world.settle()
    assert world.one()["spec"]["replicas"] == 2


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
    assert world.one()["spec"]["minReadySeconds"] == 7
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

    spec = world.one()["spec"]
    assert (spec["minReadySeconds"], spec["revisionHistoryLimit"]) == (3, 5)


def test_two_fleets_do_not_fight_over_an_object(world: World) -> None:
    world.declare(config_map(world.namespace, of="home"))
    world.settle()
    other = World(world.api, world.namespace, fleet="lab")
    other.declare(config_map(world.namespace, of="lab"))

    (outcome,) = other.apply()

    assert outcome.result is Result.FAILED
    oid = ObjectId("", "ConfigMap", world.namespace, "chat")
    assert world.one(oid)["metadata"]["labels"][FLEET_LABEL] == "home"
    (blocked,) = other.plan({oid: world.one(oid)}).blocked
    assert "fleet home" in blocked.message
    assert world.plan().changes == ()


def test_replicas_never_fall_when_the_autoscaler_takes_over(cluster: Cluster, world: World) -> None:
    world.declare(deployment(world.namespace, replicas=3))
    world.settle()
    seen = [3]
    world.desired.clear()
    world.declare(deployment(world.namespace, replicas=None), autoscaler(world.namespace, low=2))

    world.settle()
    seen.append(world.one()["spec"]["replicas"])
    cluster.kubectl(
        "scale", "deploy/chat", "-n", world.namespace, "--replicas=5"
    )  # as an autoscaler does
    seen.append(world.one()["spec"]["replicas"])
    world.settle()
    seen.append(world.one()["spec"]["replicas"])

    assert seen == [3, 3, 5, 5]
    assert "replicas" not in owned(world.one())["spec"]


def test_replicas_are_ours_again_once_the_autoscaler_goes(world: World) -> None:
    world.declare(deployment(world.namespace, replicas=3))
    world.settle()
    world.desired.clear()
    world.declare(deployment(world.namespace, replicas=None), autoscaler(world.namespace, low=2))
    world.settle()
    world.desired.clear()
    world.declare(deployment(world.namespace, replicas=4))

    world.settle()

    assert world.one()["spec"]["replicas"] == 4
    assert owned(world.one())["spec"]["replicas"] == 4


def test_what_an_autoscaler_set_is_taken_back_once_it_goes(cluster: Cluster, world: World) -> None:
    world.declare(deployment(world.namespace, replicas=None), autoscaler(world.namespace, low=3))
    world.settle()
    wait_for(lambda: world.one()["spec"]["replicas"] == 3, "the autoscaler acts")
    world.desired.clear()
    world.declare(deployment(world.namespace, replicas=2))

    world.settle()

    assert world.one()["spec"]["replicas"] == 2
    assert owned(world.one())["spec"]["replicas"] == 2


def test_a_service_that_was_switched_off_wakes_under_its_autoscaler(world: World) -> None:
    world.declare(deployment(world.namespace, replicas=0), autoscaler(world.namespace, low=2))
    world.settle()
    world.declare(deployment(world.namespace, replicas=None))

    world.settle()

    wait_for(lambda: world.one()["spec"]["replicas"] == 2, "the autoscaler acts")


def test_what_a_controller_sets_is_shown_and_left(cluster: Cluster, world: World) -> None:
    world.declare(deployment(world.namespace, replicas=1))
    world.settle()
    cluster.apply(autoscaler(world.namespace, low=3))  # somebody's own
    wait_for(lambda: world.one()["spec"]["replicas"] == 3, "the autoscaler acts")

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
    assert world.one()["spec"]["replicas"] == 4


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
    container = world.one()["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "engine:1"
    assert container["resources"]["limits"] == {"memory": "12Gi"}
    assert {"name": "LANG", "value": "C"} in container["env"]
