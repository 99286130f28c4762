"""What to do about one object, and what that does to its pods: from what is declared and what is
there."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from reconciler.api.meta import FORCE_FIELDS_ANNOTATION, HOLD_ANNOTATION
from reconciler.core.plan import Action, Blocked, Change, Restart
from reconciler.kube.diff.difference import Cause, compare
from reconciler.kube.diff.step import ObjectStep, step_of
from reconciler.kube.objects import (
    INPUTS_DIGEST_ANNOTATION,
    NEEDS_ANNOTATION,
    RENDER_DIGEST_ANNOTATION,
    Manifest,
    id_of,
)
from tests.support.builders import ref
from tests.support.kube_live import as_applied, edited
from tests.support.kube_world import TARGET, changed, claim, config_map, deployment, service

CHAT = deployment("default", minReadySeconds=3)
IMAGE, REPLICAS = "spec.template.spec.containers[engine].image", "spec.replicas"
NAMED = 'k:{"name":"engine"}'


def step(
    want: Manifest, have: Manifest | None, *, rolls: bool = False, **at: Any
) -> tuple[tuple[Change, ...], tuple[Blocked, ...]]:
    resting = at.pop("resting", {})
    where = ObjectStep(TARGET, id_of(want), ref(), None, **at)
    return step_of(where, want, have, rolls, resting)


def noted(manifest: Manifest, **annotations: str) -> dict[str, Any]:
    made = copy.deepcopy(dict(manifest))
    made["metadata"].setdefault("annotations", {}).update(annotations)
    return made


def rendered(inputs: str, render: str, **container: Any) -> dict[str, Any]:
    digests = {INPUTS_DIGEST_ANNOTATION: inputs, RENDER_DIGEST_ANNOTATION: render}
    return noted(changed(CHAT, **container), **digests)


_RECREATE = {"strategy": {"type": "Recreate"}}
_OTHER_LABELS = {"selector": {"matchLabels": {"app": "other"}}}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (CHAT, changed(CHAT, image="e:2"), ("ObjectChanged", Restart.ROLL, {IMAGE: True})),
        (
            deployment("default", **_RECREATE),
            changed(deployment("default", **_RECREATE), image="e:2"),
            ("ObjectChanged", Restart.RESTART, {IMAGE: True}),
        ),
        (
            CHAT,
            deployment("default", minReadySeconds=3, replicas=3),
            ("ObjectChanged", Restart.NONE, {REPLICAS: False}),
        ),
        (
            CHAT,
            changed(deployment("default", minReadySeconds=3, replicas=3), image="e:2"),
            ("ObjectChanged", Restart.ROLL, {IMAGE: True, REPLICAS: False}),
        ),
        (CHAT, noted(CHAT, **{NEEDS_ANNOTATION: "[]"}), ("MemoryKnown", Restart.NONE, {})),
        (
            rendered("a", "1"),
            rendered("b", "2", image="e:2"),
            ("ObjectChanged", Restart.ROLL, {IMAGE: True}),
        ),
        (
            config_map("default", a="1"),
            config_map("default", a="2"),
            ("ObjectChanged", Restart.NONE, {"data.a": False}),
        ),
        (
            service("default"),
            service("default", clusterIP="None"),
            ("ImmutableField", Restart.NONE, {"spec.clusterIP": False}),
        ),
        (
            CHAT,
            deployment("default", minReadySeconds=3, **_OTHER_LABELS),
            ("ImmutableField", Restart.RESTART, {"spec.selector": True}),
        ),
    ],
    ids=[
        "template",
        "template, recreated",
        "beside it",
        "both",
        "memory",
        "inputs",
        "no pods",
        "recreated, no pods",
        "recreated with its pods",
    ],
)
def test_what_is_declared_anew_restarts_pods_where_it_is_in_their_template_or_recreates_them(
    before: Manifest, after: Manifest, expected: tuple[str, Restart, dict[str, bool]]
) -> None:
    (change,), blocked = step(after, as_applied(before))

    fields = {f.path: f.forces_restart for f in change.fields}
    assert (change.reason, change.impact.restart, fields) == expected
    is_replaced = change.reason == "ImmutableField"
    assert change.action is (Action.REPLACE if is_replaced else Action.UPDATE)
    assert ("deleted and recreated" in change.message) is is_replaced
    assert change.manifest is not None
    assert blocked == ()


def test_what_would_lose_its_data_is_not_recreated() -> None:
    want, live = claim("default"), claim("default")
    want["spec"] |= {"storageClassName": "fast"}
    live["spec"] |= {"storageClassName": "slow"}

    changes, (blocked,) = step(want, as_applied(live))

    assert changes == ()
    assert (blocked.reason, blocked.holds) == ("Guarded", (ref(),))
    assert blocked.message == (
        "PersistentVolumeClaim default/chat: spec.storageClassName slow -> fast cannot be changed"
        " in place, and recreating it loses its data"
    )


def test_a_new_rendering_of_the_same_inputs_waits_unless_the_pods_are_replaced_anyway() -> None:
    live, want = as_applied(rendered("a", "1")), rendered("a", "2", image="e:2")

    (waits,), _ = step(want, live)
    (rolled,), _ = step(want, live, rolls=True)

    assert (waits.action, waits.reason, waits.fields) == (Action.DEFERRED, "RenderChanged", ())
    assert (rolled.action, [f.path for f in rolled.fields]) == (Action.UPDATE, [IMAGE])


@pytest.mark.parametrize(
    ("metadata", "waits_for"),
    [({}, "its own end"), ({"finalizers": ["a/b", "c/d"]}, "a/b, c/d")],
)
def test_what_is_being_deleted_is_waited_for_by_name(
    metadata: dict[str, Any], waits_for: str
) -> None:
    changes, (blocked,) = step(CHAT, as_applied(CHAT, deletionTimestamp="now", **metadata))

    assert (changes, blocked.reason) == ((), "ObjectGoing")
    assert f"is being deleted and waits for {waits_for}; it is recreated" in blocked.message


@pytest.mark.parametrize(("is_new", "reason"), [(True, "Added"), (False, "ObjectMissing")])
def test_what_is_not_there_is_created(is_new: bool, reason: str) -> None:
    (change,), blocked = step(CHAT, None, is_new=is_new)

    assert (change.action, change.reason, blocked) == (Action.CREATE, reason, ())


_BACK = (Action.DRIFT, "DriftedByOther", {REPLICAS: (5, 2), "spec.minReadySeconds": (7, 3)})


@pytest.mark.parametrize(
    ("by", "at", "expected"),
    [
        ("kubectl-edit", {}, [_BACK]),
        ("kubectl-edit", {"is_enforced": False}, [(Action.DRIFT, "DriftReported", _BACK[2])]),
        (
            "kubectl-edit",
            {"resting": {(id_of(CHAT), REPLICAS): "they fight"}},
            [
                (Action.DRIFT, "DriftedByOther", {"spec.minReadySeconds": (7, 3)}),
                (Action.DRIFT, "Fight", {REPLICAS: (5, 2)}),
            ],
        ),
        ("kube-controller-manager", {}, [(Action.DRIFT, "DriftShown", _BACK[2])]),
    ],
    ids=["taken back", "reported", "one of them is fought for", "a controller's"],
)
def test_what_others_changed_is_taken_back_or_shown_with_who_and_since_when(
    by: str, at: dict[str, Any], expected: list[tuple[Action, str, dict[str, tuple[int, int]]]]
) -> None:
    live = edited(as_applied(CHAT), by, replicas=5, minReadySeconds=7)

    changes, blocked = step(CHAT, live, **at)

    made = [(c.action, c.reason, {f.path: (f.before, f.after) for f in c.fields}) for c in changes]
    assert (made, blocked) == (expected, ())
    assert {(c.by, c.since) for c in changes} == {(by, 1767225600.0)}
    assert {c.message for c in changes if c.reason == "Fight"} <= {"they fight"}
    assert all((c.manifest is None) is c.is_shown_only for c in changes)


def test_a_change_of_ours_says_what_it_takes_back_beside_it() -> None:
    live = edited(as_applied(CHAT), "kubectl-edit", replicas=5)

    (change,), _ = step(changed(CHAT, image="e:2"), live)

    assert (change.action, change.reason) == (Action.UPDATE, "ObjectChanged")
    assert change.message == "spec.replicas 2 -> 5 by kubectl-edit: back"
    assert {f.path for f in change.fields} == {IMAGE, REPLICAS}


@pytest.mark.parametrize(
    ("said", "is_taken"),
    [
        ("", False),
        ("spec.paused", False),
        ("spec.minReady", False),  # a part of its name
        ("spec.minReadySeconds", True),
        ("spec.replicas , spec.minReadySeconds", True),
        ("spec", True),  # a parent
    ],
)
def test_what_others_set_first_is_taken_where_the_annotation_names_it(
    said: str, is_taken: bool
) -> None:
    theirs = edited(as_applied(deployment("default")), "kubectl-edit", minReadySeconds=7)

    changes, blocked = step(noted(CHAT, **{FORCE_FIELDS_ANNOTATION: said}), theirs)

    (change,) = changes  # the annotation itself is one
    assert ("spec.minReadySeconds" in [f.path for f in change.fields]) is is_taken
    assert change.message == ("spec.minReadySeconds: taken from kubectl-edit" if is_taken else "")
    messages = {b.message for b in blocked}
    assert (
        messages == set()
        if is_taken
        else messages
        == {
            "Deployment default/chat: spec.minReadySeconds is 7 by kubectl-edit, declared is 3. It"
            " stays theirs; to take it, declare the annotation"
            f" {FORCE_FIELDS_ANNOTATION}: spec.minReadySeconds"
        }
    )


def test_what_would_change_of_a_held_object_is_said_and_left() -> None:
    live = edited(as_applied(noted(CHAT, **{HOLD_ANNOTATION: "true"})), "kubectl-edit", replicas=5)
    want = noted(changed(CHAT, image="e" * 50), **{HOLD_ANNOTATION: "true"})

    changes, (blocked,) = step(want, live)
    (lifted, *_), unheld = step(changed(CHAT, image="e:2"), live)

    assert (changes, blocked.reason) == ((), "Held")
    assert blocked.message == (
        f"Deployment default/chat: {IMAGE} engine:1 -> {'e' * 37}...;"
        " spec.replicas 2 -> 5 by kubectl-edit; left by its hold annotation"
    )
    assert (lifted.action, unheld) == (Action.UPDATE, ())


def _below(keys: tuple[str, ...], fields: dict[str, Any]) -> dict[str, Any]:
    for key in reversed(keys):
        fields = {key: fields}
    return fields


_POD = ("f:spec", "f:template", "f:spec")
_ENGINE = (*_POD, "f:containers", NAMED)
_MOUNT = {"mountPath": "/x", "name": "x"}


@pytest.mark.parametrize(
    ("place", "value", "owned", "found"),
    [
        # beside entries of ours
        (_ENGINE, {"env": {"name": "A", "value": "1"}}, {'k:{"name":"A"}': {".": {}}}, ["env[A]"]),
        (_POD, {"tolerations": {"key": "x"}}, {'k:{"key":"x"}': {}}, []),  # not a list of ours
        # a list of which we render nothing
        (_ENGINE, {"envFrom": [{"prefix": "x"}]}, {}, ["envFrom"]),
        (_ENGINE, {"command": ["sh"]}, {}, ["command"]),
        (_POD, {"initContainers": [{"name": "x"}]}, {'k:{"name":"x"}': {}}, ["initContainers[x]"]),
        (_POD, {"tolerations": [{"key": "x"}]}, {}, []),
        # fields that are no lists, or are gone again
        (_POD, {"priorityClassName": "high"}, {}, []),
        (_ENGINE, {}, {"f:envFrom": {}}, []),
    ],
)
@pytest.mark.parametrize(
    ("by", "is_seen"),
    [
        ({"manager": "kubectl-edit", "operation": "Update"}, True),
        ({"manager": "kubectl-edit", "operation": "Update", "subresource": "scale"}, False),
        ({"manager": "kubelet", "operation": "Update"}, False),
        ({"manager": "fleet-agent", "operation": "Apply"}, False),
    ],
    ids=lambda by: str(by),
)
def test_an_entry_that_others_put_into_a_list_that_we_render_is_found_and_nothing_else(
    place: tuple[str, ...],
    value: dict[str, Any],
    owned: dict[str, Any],
    found: list[str],
    by: dict[str, str],
    is_seen: bool,
) -> None:
    live = as_applied(CHAT)
    pod = live["spec"]["template"]["spec"]
    at = pod if place == _POD else pod["containers"][0]
    fields = owned
    for name, what in value.items():
        at[name] = what if isinstance(what, (list, str)) else [*at.get(name, ()), what]
        fields = {f"f:{name}": owned}
    row = {**by, "time": "2026-01-01T00:00:00Z", "fieldsV1": _below(place, fields)}
    live["metadata"]["managedFields"].append(row)

    seen = [
        (d.field.split(".spec.")[-1].split("engine].")[-1], d.cause) for d in compare(CHAT, live)
    ]

    assert seen == ([(name, Cause.ADDED) for name in found] if is_seen else [])
