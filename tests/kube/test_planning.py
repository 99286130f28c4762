"""What is to be done with a cluster's objects, as the services' plan and the Fleet's rules say."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from reconciler.api.meta import HOLD_ANNOTATION, PRUNE_ANNOTATION
from reconciler.core.plan import Action, Blocked, Change, Impact, Plan, Restart
from reconciler.core.planner import Policy
from reconciler.core.prune import PruneLimits
from reconciler.kube.diff.planning import Compared, ObjectPlan, Scope, plan_objects
from reconciler.kube.inventory import ForeignSet, check_parent, labelled, parent
from reconciler.kube.object_set import ObjectSet, packed
from reconciler.kube.objects import (
    INPUTS_DIGEST_ANNOTATION,
    RENDER_DIGEST_ANNOTATION,
    Manifest,
    ObjectId,
    id_of,
)
from tests.support.builders import FixedCauses, ref
from tests.support.kube_live import as_applied, edited
from tests.support.kube_world import (
    TARGET,
    autoscaler,
    changed,
    claim,
    config_map,
    deployment,
    service,
)

Manifests = Iterable[dict[str, Any]]


def ours(*manifests: dict[str, Any], of: str = "chat") -> list[dict[str, Any]]:
    return [labelled(manifest, "home", of) for manifest in manifests]


def planned(
    desired: Manifests,
    live: Manifests,
    *,
    changes: tuple[Change, ...] = (),
    blocked: tuple[Blocked, ...] = (),
    policy: Policy | None = None,
    scope: Scope | None = None,
) -> ObjectPlan:
    plan = Plan("rev", changes, blocked, (), {}, {})
    seen, want = ({id_of(manifest): manifest for manifest in each} for each in (live, desired))
    return plan_objects(
        scope or Scope(TARGET, "home"), plan, want, seen, policy or Policy(), FixedCauses()
    )


def of_service(action: Action, reason: str, name: str = "chat") -> Change:
    return Change(action, TARGET, ref(name), reason, None)


def done(plan: ObjectPlan) -> set[tuple[str, str]]:
    return {(str(c.action), c.object.kind) for c in plan.changes if c.object}


def test_what_is_missing_is_made_with_what_it_should_be() -> None:
    plan = planned(ours(deployment("default"), service("default")), [])

    assert done(plan) == {("create", "Deployment"), ("create", "Service")}
    assert all(c.manifest and c.ref == ref("chat") for c in plan.changes)


def test_what_is_as_it_should_be_is_counted_by_service() -> None:
    desired = ours(deployment("default"), service("default"))

    plan = planned(desired, [as_applied(manifest) for manifest in desired])

    assert plan == ObjectPlan((), (), 1)


def test_a_service_with_changes_of_its_own_is_unchanged_no_more_and_counted_once() -> None:
    change, other = (of_service(Action.UPDATE, "SpecChanged", name) for name in ("a", "b"))
    held = Blocked(ref("c"), "Held", "", None, TARGET, (ref("c"),))

    joined = ObjectPlan((change,), (held,), 3).joined(
        [change, other, other, of_service(Action.UPDATE, "SpecChanged", "c")]
    )

    assert joined.unchanged == 2
    assert len(joined.changes) == 5
    assert ObjectPlan((), (), 0).joined([other]).unchanged == 0


def test_the_same_input_gives_the_same_plan_also_from_memory() -> None:
    desired = ours(deployment("default"), service("default"))
    live = [as_applied(desired[0]), edited(as_applied(desired[1]), "kubectl-edit", type="NodePort")]
    scope = Scope(TARGET, "home")

    plans = [planned(desired, live, scope=scope) for _ in range(3)]

    assert plans[0] == plans[1] == plans[2]


def test_a_service_that_is_held_keeps_all_its_objects() -> None:
    live = [as_applied(m) for m in ours(deployment("default"), config_map("default"))]
    held = Blocked(ref(), "Held", "", None, TARGET, (ref(),))

    plan = planned(ours(changed(deployment("default"), image="new")), live, blocked=(held,))

    assert (plan.changes, plan.blocked) == ((), ())


def test_a_service_that_cannot_be_rendered_keeps_all_its_objects() -> None:
    document = {
        "apiVersion": "inference.llmkube.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "default"},
        "spec": {"modelRef": "m"},
    }
    live = [as_applied(m) for m in ours(document, deployment("default"), config_map("default"))]
    scope = Scope(TARGET, "home", unrendered={ref("chat"): "a bug in this program"})

    for blocked in ((), (Blocked(ref("chat"), "MemoryFits", "", None, None, (ref("chat"),)),)):
        plan = planned([], live, scope=scope, blocked=blocked)

        assert plan.changes == ()
        assert [(b.ref, b.reason) for b in plan.blocked] == [(ref("chat"), "InternalError")]


def test_a_service_without_room_keeps_what_runs_while_its_document_follows() -> None:
    document = {
        "apiVersion": "inference.llmkube.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "default"},
        "spec": {"modelRef": "m"},
    }
    blocked = Blocked(ref(), "MemoryFits", "", None, None, (ref(),))

    plan = planned(ours(document, deployment("default")), [], blocked=(blocked,))

    assert done(plan) == {("create", "InferenceService")}


def test_a_change_of_a_document_is_from_the_lines_of_its_fields_where_no_service_changes() -> None:
    def objects(value: str) -> list[dict[str, Any]]:
        documents = [
            {
                "apiVersion": "inference.llmkube.dev/v1alpha1",
                "kind": kind,
                "metadata": {"name": name, "namespace": "default"},
                "spec": {field: value},
            }
            for kind, name, field in (
                ("Model", "m", "source"),
                ("InferenceService", "chat", "modelRef"),
            )
        ]
        return [labelled(each, "home") for each in documents] + ours(
            changed(deployment("default"), image=value)
        )

    made = planned(
        objects("new"),
        [as_applied(each) for each in objects("old")],
        changes=(of_service(Action.UPDATE, "SpecChanged"),),
    )
    lines = {
        c.object.kind: (c.source and c.source.line, [f.source and f.source.line for f in c.fields])
        for c in made.changes
        if c.object
    }

    service, deployed = (1, [None]), (1, [None])
    assert lines == {"Model": (7, [7]), "InferenceService": service, "Deployment": deployed}


def test_a_service_that_moves_stays_until_it_answers_there() -> None:
    live = [as_applied(manifest) for manifest in ours(deployment("default"))]
    other = ours(config_map("default", "other"), of="other")
    moving = of_service(Action.MOVE, "MovedAway")
    stuck = Blocked(ref(), "MoveStuck", "", None, TARGET, (ref(),), home="node/mac")

    waiting = planned(other, live, changes=(replace(moving, awaits="there it is Loading"),))
    kept = planned(other, live, blocked=(stuck,))
    gone = planned(other, live, changes=(moving,))

    assert done(waiting) == done(kept) == {("create", "ConfigMap")}
    assert done(gone) == {("create", "ConfigMap"), ("delete", "Deployment")}


def test_what_is_removed_goes_in_reverse_with_its_uid() -> None:
    live = [as_applied(m) for m in ours(deployment("default"), service("default"))]
    rest = ours(config_map("default", "other"), of="other")

    plan = planned(rest, live, changes=(of_service(Action.DELETE, "Removed"),))

    assert done(plan) >= {("delete", "Deployment"), ("delete", "Service")}
    removed = [c for c in plan.changes if c.action is Action.DELETE]
    assert all(c.manifest and c.manifest["metadata"]["uid"] for c in removed)


def test_nothing_goes_where_no_node_of_the_cluster_is_declared() -> None:
    live = [as_applied(m) for m in ours(deployment("default"), service("default"))]

    plan = planned([], live, scope=Scope(TARGET, "home", incomplete="no node is declared"))

    assert plan.changes == ()
    assert [b.reason for b in plan.blocked] == ["RevisionIncomplete"]


def test_nothing_goes_by_an_incomplete_revision() -> None:
    live = [as_applied(manifest) for manifest in ours(deployment("default"))]
    policy = Policy(incomplete="a file cannot be read")

    plan = planned(ours(config_map("default"), of="other"), live, policy=policy)

    assert done(plan) == {("create", "ConfigMap")}
    assert [(b.reason, b.message) for b in plan.blocked] == [
        ("RevisionIncomplete", "a file cannot be read")
    ]


@pytest.mark.parametrize(
    ("annotation", "value", "reason"),
    [(PRUNE_ANNOTATION, "disabled", "PruneDisabled"), (HOLD_ANNOTATION, "true", "Held")],
)
def test_annotations_keep_an_object(annotation: str, value: str, reason: str) -> None:
    (live,) = (as_applied(manifest) for manifest in ours(config_map("default")))
    live["metadata"]["annotations"][annotation] = value

    plan = planned(ours(config_map("default", "other")), [live])

    assert done(plan) == {("create", "ConfigMap")}
    assert [b.reason for b in plan.blocked] == [reason]


def test_hold_leaves_an_object_that_differs_and_says_what_it_leaves() -> None:
    (live,) = (as_applied(manifest) for manifest in ours(deployment("default")))
    live["metadata"]["annotations"][HOLD_ANNOTATION] = "true"

    plan = planned(ours(changed(deployment("default"), image="new")), [live])

    assert plan.changes == ()
    (blocked,) = plan.blocked
    assert blocked.reason == "Held"
    assert "image engine:1 -> new" in blocked.message


def test_many_published_services_at_once_wait_for_their_token() -> None:
    names = [f"s{i}" for i in range(12)]
    live = [as_applied(labelled(service("default", n), "home", n)) for n in names]
    rest = ours(config_map("default"), of="other")

    plan = planned(rest, live)

    assert done(plan) == {("create", "ConfigMap")}
    (blocked,) = plan.blocked
    assert blocked.reason == "NeedsConfirmation"
    assert blocked.token is not None
    confirmed = Policy(prune=PruneLimits(confirmed=frozenset({blocked.token})))
    assert len(planned(rest, live, policy=confirmed).changes) == 13


def test_nothing_of_a_service_is_touched_whose_claim_is_not_there() -> None:
    desired = ours(deployment("default", replicas=2))
    live = [as_applied(m) for m in ours(deployment("default", replicas=1), config_map("default"))]
    scope = Scope(TARGET, "home", lacking={ref("chat"): "models"})

    plan = planned(desired, live, scope=scope)

    assert plan.changes == ()
    (blocked,) = plan.blocked
    assert (blocked.reason, blocked.ref) == ("ClaimMissing", ref("chat"))
    assert "claim models of namespace default is not there" in blocked.message


def test_an_object_of_a_service_that_stays_goes_without_counting() -> None:
    desired = ours(deployment("default", replicas=1))
    live = [as_applied(m) for m in (*desired, *ours(autoscaler("default")))]

    plan = planned(desired, live, policy=Policy(prune=PruneLimits(max_count=0)))

    assert done(plan) == {("delete", "HorizontalPodAutoscaler")}


def test_a_claim_that_cannot_be_changed_in_place_is_held_and_its_siblings_go() -> None:
    before = ours(claim("default"), config_map("default", a="1"))
    after = copy.deepcopy(before)
    after[0]["spec"]["accessModes"] = ["ReadWriteMany"]
    after[1]["data"] = {"a": "2"}

    plan = planned(after, [as_applied(manifest) for manifest in before])

    assert done(plan) == {("update", "ConfigMap")}
    (blocked,) = plan.blocked
    assert blocked.reason == "Guarded"
    assert "spec.accessModes" in blocked.message


def test_a_claim_may_grow() -> None:
    before, after = ours(claim("default")), ours(claim("default", storage="2Gi"))

    plan = planned(after, [as_applied(manifest) for manifest in before])

    assert done(plan) == {("update", "PersistentVolumeClaim")}


def test_objects_of_others_are_never_planned() -> None:
    stranger = config_map("default", mine="1")
    stranger["metadata"] |= {"uid": "u", "resourceVersion": "1"}

    plan = planned([], [stranger, *(as_applied(labelled(service("default"), "lab", "x")),)])

    assert (plan.changes, plan.blocked) == ((), ())


def rendered(image: str, render: str, inputs: str = "i1") -> dict[str, Any]:
    (made,) = ours(changed(deployment("default"), image=image))
    digests = {INPUTS_DIGEST_ANNOTATION: inputs, RENDER_DIGEST_ANNOTATION: render}
    return {**made, "metadata": {**made["metadata"], "annotations": digests}}


def test_what_only_we_render_otherwise_waits() -> None:
    live = as_applied(rendered("engine:1", "r1"))

    plan = planned([rendered("engine:2", "r2")], [live])

    assert [(c.action, c.reason) for c in plan.changes] == [(Action.DEFERRED, "RenderChanged")]


def test_a_rendering_that_waits_lets_the_rest_of_the_object_through() -> None:
    live = as_applied(rendered("engine:1", "r1"))
    want = rendered("engine:2", "r2")
    want["spec"]["replicas"] = 4

    update, waits = planned([want], [live]).changes

    assert [f.path for f in update.fields] == ["spec.replicas"]
    assert update.manifest is not None
    container = update.manifest["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "engine:1"
    assert update.impact.restart is Restart.NONE
    assert waits.action is Action.DEFERRED


@pytest.mark.parametrize("cause", ["inputs", "asked"])
def test_a_new_rendering_comes_with_the_next_change_or_when_asked(cause: str) -> None:
    live = as_applied(rendered("engine:1", "r1"))
    want = rendered("engine:2", "r2", "i2" if cause == "inputs" else "i1")
    rolls = replace(of_service(Action.UPDATE, "RenderChanged"), impact=Impact(restart=Restart.ROLL))

    (change,) = planned([want], [live], changes=(rolls,) if cause == "asked" else ()).changes

    assert change.action is Action.UPDATE
    assert [f.path for f in change.fields] == ["spec.template.spec.containers[engine].image"]
    assert change.impact.restart is Restart.ROLL


def test_an_object_that_is_going_is_waited_for() -> None:
    (live,) = (as_applied(m) for m in ours(config_map("default")))
    live["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x/y"]}

    plan = planned(ours(config_map("default")), [live])

    assert plan.changes == ()
    assert [b.reason for b in plan.blocked] == ["ObjectGoing"]
    assert "x/y" in plan.blocked[0].message


def test_the_set_of_another_tool_is_refused() -> None:
    members = [ObjectId("apps", "Deployment", "default", "chat")]
    mine = parent("home", members, "abc")
    theirs = copy.deepcopy(mine)
    theirs["metadata"]["annotations"]["applyset.kubernetes.io/tooling"] = "kubectl/v1.36"

    check_parent(mine, "home")
    check_parent(None, "home")
    with pytest.raises(ForeignSet, match="kubectl/v1"):
        check_parent(theirs, "home")
    annotations = mine["metadata"]["annotations"]
    assert annotations["applyset.kubernetes.io/contains-group-kinds"] == "Deployment.apps"
    assert annotations["applyset.kubernetes.io/additional-namespaces"] == "default"


def test_a_field_that_is_taken_from_somebody_says_from_whom() -> None:
    (before,) = ours(deployment("default"))
    (want,) = ours(deployment("default", minReadySeconds=5))
    annotation = "inference.llmkube.dev/force-fields"
    want["metadata"]["annotations"] = {annotation: "spec.minReadySeconds"}
    live = edited(as_applied(before), "ops", minReadySeconds=3)

    (change,) = planned([want], [live]).changes

    assert (change.action, change.message) == (
        Action.UPDATE,
        "spec.minReadySeconds: taken from ops",
    )


def test_what_is_forced_again_and_again_is_a_drift_that_can_become_a_fight() -> None:
    (want,) = ours(deployment("default", replicas=1))
    want["metadata"]["annotations"] = {"inference.llmkube.dev/force-fields": "spec.replicas"}
    live = edited(as_applied(want), "kube-controller-manager", replicas=3)
    oid = id_of(want)

    (taken,) = planned([want], [live]).changes
    resting = Scope(TARGET, "home", resting={(oid, "spec.replicas"): "again and again"})
    (left,) = planned([want], [live], scope=resting).changes

    assert (taken.reason, taken.by) == ("DriftedByOther", "kube-controller-manager")
    assert (left.reason, left.message) == ("Fight", "again and again")


class CountedObjects(ObjectSet):
    """Objects as a watch keeps them, and the names of those that were looked into."""

    def __init__(self, objects: Iterable[Manifest]) -> None:
        super().__init__({id_of(each): packed(each) for each in objects})
        self.read: list[str] = []

    def __getitem__(self, oid: ObjectId) -> Manifest:
        self.read.append(oid.name)
        return super().__getitem__(oid)


_NAMES = ("a", "b", "c")


def available(live: Manifest) -> Manifest:
    """The object once its controller has written that it serves."""
    metadata = {**live["metadata"], "resourceVersion": "9"}
    return {**live, "metadata": metadata, "status": {"availableReplicas": 1}}


def scaled(live: Manifest) -> Manifest:
    return edited(live, "kubectl-scale", replicas=5)


@pytest.mark.parametrize(
    ("news", "read"),
    [({}, []), (dict.fromkeys(_NAMES, available), []), ({"b": scaled}, ["b"])],
    ids=["nothing", "statuses", "one was scaled"],
)
@pytest.mark.parametrize("settled", [True, False], ids=["settled", "left to be done"])
def test_a_pass_compares_what_has_changed_since_the_last_one(
    news: Mapping[str, Callable[[Manifest], Manifest]], read: list[str], settled: bool
) -> None:
    known, causes = Compared(), FixedCauses()
    meant = [labelled(deployment("default", name), "home", name) for name in _NAMES]
    live = [as_applied(each) for each in meant]
    wanted = meant if settled else [changed(each, image="engine:2") for each in meant]
    want = ObjectSet({id_of(each): packed(each) for each in wanted})

    def planned_from(objects: ObjectSet, turn: int) -> ObjectPlan:
        changes = (of_service(Action.UPDATE, "SettingsChanged", name) for name in _NAMES)
        turns = tuple(replace(c, impact=Impact(order=turn + n)) for n, c in enumerate(changes))
        services, scope = Plan("rev", turns, (), (), {}, {}), Scope(TARGET, "home")
        return plan_objects(scope, services, want, objects, Policy(), causes, known)

    first = planned_from(CountedObjects(live), turn=9)
    now = CountedObjects(news.get(each["metadata"]["name"], dict)(each) for each in live)
    planned_from(now, turn=7)  # two others are done

    assert now.read == read
    assert len(first.changes) == (0 if settled else len(_NAMES))
