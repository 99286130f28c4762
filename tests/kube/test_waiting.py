"""Whole services after an upgrade of ours: what waits, and what that needs stays."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from reconciler.core.plan import Action, Change, Impact, Plan, Restart
from reconciler.core.planner import Policy
from reconciler.kube.diff.planning import ObjectPlan, Scope, plan_objects
from reconciler.kube.inventory import labelled
from reconciler.kube.objects import RENDER_DIGEST_ANNOTATION, Manifest, id_of
from tests.support.builders import FixedCauses, ref
from tests.support.kube_live import as_applied
from tests.support.manifests import one, one_service

TARGET = "cluster/prod"
ROUTER: dict[str, Any] = {
    "runtime": "llamacpp-router",
    "modelRef": None,
    "models_": [{"name": "gemma"}],
}


def before_the_upgrade(**spec: Any) -> list[Manifest]:
    """A router's objects as an older version of ours left them: another image and preset."""
    made = copy.deepcopy([dict(manifest) for manifest in one_service(**ROUTER, **spec)])
    template = one(made, "Deployment")["spec"]["template"]["spec"]
    template["containers"][0]["image"] = "registry.lan/older:1"
    one(made, "ConfigMap")["metadata"]["name"] = "chat-0123456789"
    (files,) = [v for v in template["volumes"] if v["name"] == "files"]
    files["configMap"]["name"] = "chat-0123456789"
    one(made, "Deployment")["metadata"]["annotations"][RENDER_DIGEST_ANNOTATION] = "older"
    return [as_applied(manifest) for manifest in ours(made)]


def ours(manifests: Iterable[Manifest]) -> list[Any]:
    return [labelled(manifest, "home", "chat") for manifest in manifests]


def planned(live: list[Manifest], *changes: Change, **spec: Any) -> ObjectPlan:
    services = Plan("rev", changes, (), (), {}, {})
    seen = {id_of(manifest): manifest for manifest in live}
    desired = {id_of(manifest): manifest for manifest in ours(one_service(**ROUTER, **spec))}
    return plan_objects(Scope(TARGET, "home"), services, desired, seen, Policy(), FixedCauses())


def kinds(plan: ObjectPlan, action: Action) -> list[str]:
    return [
        change.object.kind for change in plan.changes if change.action is action and change.object
    ]


def test_the_preset_of_a_template_that_waits_stays() -> None:
    plan = planned(before_the_upgrade())

    assert kinds(plan, Action.DEFERRED) == ["Deployment"]
    assert kinds(plan, Action.DELETE) == []
    assert kinds(plan, Action.UPDATE) == []


def test_it_goes_with_the_template_that_named_it() -> None:
    rolls = Change(
        Action.REPLACE,
        TARGET,
        ref("chat"),
        "RenderChanged",
        None,
        impact=Impact(restart=Restart.ROLL),
    )

    plan = planned(before_the_upgrade(), rolls)

    assert kinds(plan, Action.UPDATE) == ["Deployment"]
    assert kinds(plan, Action.DELETE) == ["ConfigMap"]


def test_another_number_of_pods_makes_no_pod_anew() -> None:
    plan = planned(before_the_upgrade(), replicas=3)

    (update,) = [c for c in plan.changes if c.action is Action.UPDATE]
    assert "spec.replicas" in [f.path for f in update.fields]
    assert not [f.path for f in update.fields if f.path.startswith("spec.template")]
    assert kinds(plan, Action.DELETE) == []
