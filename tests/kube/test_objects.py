"""Objects in a real cluster: created, changed, replaced and removed, and nobody else's touched."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from reconciler.core.plan import Action
from reconciler.core.target import Result
from reconciler.kube.apply.objects import apply_objects
from reconciler.kube.client.api import ApiServer
from reconciler.kube.inventory import (
    ID_LABEL,
    KINDS_ANNOTATION,
    ForeignSet,
    parent_id,
    revision_of,
    set_id,
    write_parent,
)
from reconciler.kube.objects import (
    FLEET_LABEL,
    SYSTEM_NAMESPACE,
    ObjectId,
    id_of,
)
from tests.support.cluster import Cluster
from tests.support.fault_proxy import FaultProxy
from tests.support.kube_world import (
    World,
    autoscaler,
    changed,
    claim,
    config_map,
    deployment,
    service,
)

pytestmark = [pytest.mark.cluster, pytest.mark.e2e]


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
    assert world.one()["spec"]["template"]["spec"]["containers"][0]["image"] == "engine:2"


def test_a_field_that_is_dropped_goes(world: World) -> None:
    world.declare(config_map(world.namespace, a="1", b="2"))
    world.settle()
    world.declare(config_map(world.namespace, a="1"))

    world.settle()

    assert world.one(ObjectId("", "ConfigMap", world.namespace, "chat"))["data"] == {"a": "1"}


def test_an_object_that_is_not_ours_is_never_touched(cluster: Cluster, world: World) -> None:
    foreign = config_map(world.namespace, mine="1")
    cluster.apply(foreign)
    world.declare(config_map(world.namespace, ours="1"))

    outcomes = world.apply()  # no watch of ours sees it: it has no label of ours

    assert [o.result for o in outcomes] == [Result.FAILED]
    assert "kubectl" in outcomes[0].message
    oid = id_of(foreign)
    assert world.one(oid)["data"] == {"mine": "1"}
    (blocked,) = world.plan({oid: world.one(oid)}).blocked
    assert blocked.reason == "NotOurs"
    assert "kubectl" in blocked.message


def test_an_object_that_another_controller_took_for_its_own_is_left_to_it(world: World) -> None:
    """As KEDA's HTTP add-on does with a ScaledObject of the same name."""
    world.declare(config_map(world.namespace, ours="1"))
    world.settle()
    mine = world.one(ObjectId("", "ConfigMap", world.namespace, "chat"))
    owner = {"apiVersion": "http.keda.sh/v1alpha1", "kind": "HTTPScaledObject", "name": "chat"}
    taken = {**mine["metadata"], "ownerReferences": [{**owner, "uid": "1", "controller": True}]}

    (blocked,) = world.plan({id_of(mine): {**mine, "metadata": taken}}).blocked

    assert blocked.reason == "NotOurs"
    assert "is HTTPScaledObject chat's: it stays as it is" in blocked.message
    assert blocked.message.endswith("or delete HTTPScaledObject chat")


def test_an_immutable_field_makes_the_object_anew(world: World) -> None:
    world.declare(deployment(world.namespace))
    world.settle()
    uid = world.one()["metadata"]["uid"]
    wanted = deployment(world.namespace)
    wanted["spec"]["selector"]["matchLabels"] = {"app": "chat", "v": "2"}
    wanted["spec"]["template"]["metadata"]["labels"] = {"app": "chat", "v": "2"}
    world.declare(wanted)

    (change,) = world.plan().changes

    assert (change.action, change.reason) == (Action.REPLACE, "ImmutableField")
    assert "spec.selector" in change.message
    world.settle()
    assert world.one()["metadata"]["uid"] != uid


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
    assert world.one(ObjectId("", "ConfigMap", world.namespace, "a"))["data"] == {
        "somebody": "else"
    }
    assert world.one(ObjectId("", "ConfigMap", world.namespace, "b"))["data"] == {"x": "1"}


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

    theirs = world.one(parent_id("theirs"))

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
    annotations = world.one(parent_id("home"))["metadata"]["annotations"]
    assert annotations[KINDS_ANNOTATION] == "Deployment.apps"
    with FaultProxy(api.grant()) as proxy:
        write_parent(proxy.api(), "home", second, members, "abc")
        assert proxy.requests == []
