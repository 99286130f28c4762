"""Who owns what of an object, and what differs: as a kube-apiserver v1.36.3 keeps objects."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from reconciler.kube.diff.difference import Cause, compare
from reconciler.kube.diff.equality import quantity, same
from reconciler.kube.diff.immutable import forcing
from reconciler.kube.diff.managed import entries, owned, owners, put_by_others, server_path, show
from reconciler.kube.diff.payload import pointer, without
from reconciler.kube.diff.record import APPLIED_ANNOTATION, AppliedRecord, record_of, recorded
from reconciler.kube.diff.untouched import is_untouched
from reconciler.kube.inventory import labelled, set_id
from reconciler.kube.objects import id_of
from tests.support.kube_world import changed, deployment

_CASES = Path(__file__).parents[1] / "cases" / "kube_objects"
_CONTAINER = "spec.template.spec.containers[engine]"


@pytest.fixture
def edited() -> dict[str, Any]:
    """A Deployment of ours: kubectl-edit changed the memory limit, added a variable and set
    minReadySeconds; the autoscaler set the replicas."""
    found: dict[str, Any] = json.loads((_CASES / "deployment-edited.json").read_text())
    return found


def desired(**spec: Any) -> dict[str, Any]:
    return labelled(deployment("default", **spec), "home", "chat")


def test_what_we_still_own_is_what_we_sent_without_what_others_took(
    edited: dict[str, Any],
) -> None:
    mine = owned(edited)

    del mine["metadata"]["annotations"][APPLIED_ANNOTATION]
    sent = desired(replicas=None)
    container = sent["spec"]["template"]["spec"]["containers"][0]
    del container["resources"]["limits"]
    container["resources"]["requests"]["cpu"] = "1"  # as the server writes 1000m
    container["env"][1].pop("value")  # an empty one is not kept
    sent["metadata"].pop("annotations", None)
    mine["metadata"].pop("annotations")
    assert mine == sent


def test_the_cause_of_each_difference_is_told_with_who_made_it(edited: dict[str, Any]) -> None:
    found = compare(desired(minReadySeconds=3), edited)

    assert {(d.field, d.cause, d.by and d.by.label) for d in found} == {
        ("spec.minReadySeconds", Cause.CONFLICT, "kubectl-edit"),
        ("spec.replicas", Cause.CONTROLLER, "kube-controller-manager"),
        (f"{_CONTAINER}.resources.limits.memory", Cause.DRIFT, "kubectl-edit"),
        (f"{_CONTAINER}.env[DEBUG]", Cause.ADDED, "kubectl-edit"),
    }
    assert all(d.by.time for d in found if d.by and not d.by.subresource)  # scale tells no time


@pytest.mark.parametrize(
    ("time", "by"),
    [
        ("2026-12-01T00:00:00Z", "helm"),
        ("2026-01-01T00:00:00Z", "kubectl-edit"),
        (None, "kubectl-edit"),
    ],
)
def test_of_several_owners_the_latest_made_a_difference(
    edited: dict[str, Any], time: str | None, by: str
) -> None:
    part = {"f:spec": {"f:minReadySeconds": {}}}
    row = {"manager": "helm", "operation": "Update", "time": time, "fieldsV1": part}
    for rows in ([row, *edited["metadata"]["managedFields"]],
                 [*edited["metadata"]["managedFields"], row]):  # fmt: skip
        edited["metadata"]["managedFields"] = rows

        found = compare(desired(minReadySeconds=3), edited)

        (theirs,) = [d for d in found if d.field == "spec.minReadySeconds"]
        assert theirs.by is not None
        assert theirs.by.label == by
        edited["metadata"]["managedFields"].remove(row)


def test_a_change_of_ours_is_told_apart_from_drift_beside_it(edited: dict[str, Any]) -> None:
    found = compare(changed(desired(), image="engine:2"), edited)

    causes = {d.field: d.cause for d in found}
    assert causes[f"{_CONTAINER}.image"] is Cause.DECLARED
    assert causes[f"{_CONTAINER}.resources.limits.memory"] is Cause.DRIFT


def test_a_dropped_entry_is_a_change_of_ours(edited: dict[str, Any]) -> None:
    found = compare(changed(desired(), env=[{"name": "LANG", "value": "C"}]), edited)

    (dropped,) = [d for d in found if d.field.endswith("env[EMPTY]")]
    assert (dropped.cause, dropped.after) == (Cause.DECLARED, None)


def test_a_list_that_is_to_be_empty_is_compared_as_a_whole(edited: dict[str, Any]) -> None:
    found = compare(changed(desired(), env=[]), edited)

    assert f"{_CONTAINER}.env" in {d.field for d in found}


def test_what_somebody_else_has_is_left_out_of_what_is_sent(edited: dict[str, Any]) -> None:
    want = desired(minReadySeconds=3)
    theirs = [d for d in compare(want, edited) if d.cause is not Cause.DRIFT]

    sent = without(want, edited, [d for d in theirs if d.cause is not Cause.ADDED])

    assert "minReadySeconds" not in sent["spec"]
    assert "replicas" not in sent["spec"]
    assert want["spec"]["replicas"] == 2  # the original is left alone


def test_an_object_that_was_edited_is_not_untouched(edited: dict[str, Any]) -> None:
    pristine = copy.deepcopy(edited)
    rows = pristine["metadata"]["managedFields"]
    ours = next(row for row in rows if row["manager"] == "fleet-reconciler")
    pristine["metadata"]["managedFields"] = [ours]

    assert not is_untouched(desired(), edited)
    assert not is_untouched(desired(), pristine)  # it lost fields of what it should be


def test_owners_of_a_field_are_found_by_its_path(edited: dict[str, Any]) -> None:
    at = ("f:spec", "f:template", "f:spec", "f:containers", 'k:{"name":"engine"}')

    assert [e.label for e in owners(edited, (*at, "f:image"))] == ["fleet-reconciler"]
    limit = (*at, "f:resources", "f:limits", "f:memory")
    assert [e.label for e in owners(edited, limit)] == ["kubectl-edit"]
    assert [e.label for e in owners(edited, ("f:spec", "f:selector", "f:matchLabels"))] == [
        "fleet-reconciler"
    ]
    assert {e.subresource for e in entries(edited)} == {"", "scale"}


def test_a_pointer_names_the_place_that_an_entry_has_now(edited: dict[str, Any]) -> None:
    (added,) = [d for d in compare(desired(), edited) if d.cause is Cause.ADDED]

    assert pointer(edited, added.path) == "/spec/template/spec/containers/0/env/2"


def test_paths_read_as_people_write_them_and_as_the_server_does() -> None:
    path = ("f:spec", "f:ports", 'k:{"port":80,"protocol":"TCP"}', "f:targetPort")
    label = ("f:metadata", "f:labels", "f:app.kubernetes.io/name")

    assert show(path) == "spec.ports[80].targetPort"
    assert server_path(path) == '.spec.ports[port=80,protocol="TCP"].targetPort'
    assert (
        server_path((*path[:2], 'k:{"name":"app-\U0001f4bb"}'))
        == '.spec.ports[name="app-\U0001f4bb"]'
    )
    assert show(label) == "metadata.labels[app.kubernetes.io/name]"
    others = ("f:metadata", "f:finalizers", 'v:"a/b"'), ("f:spec", "f:args", "i:2")
    assert [show(path) for path in others] == ["metadata.finalizers[a/b]", "spec.args[2]"]
    assert [server_path(path) for path in others] == [
        '.metadata.finalizers[="a/b"]',
        ".spec.args[2]",
    ]
    assert show(("f:ports", 'k:{"port":80,"protocol":"UDP"}')) == "ports[80/UDP]"
    assert show(('k:{"name":"a"}', "f:b")) == "[a].b"


def test_the_latest_owner_of_a_field_comes_first() -> None:
    rows = [
        {"manager": name, "operation": "Update", "fieldsV1": {"f:a": {}}} | more
        for name, more in (
            ("undated", {}),
            ("old", {"time": "2026-01-01T00:00:00Z"}),
            ("new", {"time": "2026-02-01T00:00:00Z"}),
            ("broken", {"time": "0000-99-01T00:00:00Z"}),
        )
    ]

    found = owners({"metadata": {"managedFields": rows}}, ("f:a",))

    assert [e.label for e in found] == ["new", "old", "undated", "broken"]


def test_an_annotation_that_we_applied_is_not_put_by_others(edited: dict[str, Any]) -> None:
    mine = APPLIED_ANNOTATION
    edited["metadata"]["annotations"] |= {"theirs": "x"}

    assert [put_by_others(edited, name) for name in (mine, "theirs", "none")] == [None, "x", None]


@pytest.mark.parametrize(
    ("want", "have", "path", "is_same"),
    [
        ("12288Mi", "12Gi", "f:resources/f:limits/f:memory", True),
        (1, "1", "f:resources/f:requests/f:cpu", True),
        ("1000m", "1", "f:resources/f:requests/f:cpu", True),
        ("1000m", "1", "f:env/f:value", False),
        ("", None, "f:env/f:value", True),
        (0, None, "f:spec/f:minReadySeconds", True),
        ({}, {"type": "RollingUpdate"}, "f:spec/f:strategy", True),
        ({}, {"app": "chat"}, "f:spec/f:selector", False),
        (["a"], ["a", "b"], "f:args", False),
        ({"a": 1}, {"a": 1, "b": 2}, "f:anything", False),
        ({"a": 1}, {"a": 1, "b": ""}, "f:anything", True),
        ({"a": "x"}, {"a": "x", "b": ""}, "f:spec/f:nodeSelector", False),
        ({"matchLabels": {"a": "x"}}, {"matchLabels": {"a": "x", "b": ""}}, "f:selector", False),
        ("", None, "f:spec/f:nodeSelector/f:a", False),
        ("", None, "f:metadata/f:labels/f:a", False),
        (True, None, "f:spec/f:suspend", False),
        ("", None, "f:a", True),
        ("", None, "f:labels/f:a", False),
        (False, None, "f:spec/f:suspend", True),
        ([], None, "f:args", True),
        (["a"], None, "f:args", False),
        ({"a": 1}, None, "f:anything", False),
        (None, "x", "f:anything", True),
        (["", "b"], ["", "b"], "f:args", True),
        (["b"], ["c"], "f:args", False),
        ("1024Mi", "1Gi", "f:emptyDir/f:sizeLimit", True),
        ("1024Mi", "1Gi", "f:sizeLimit", True),
        ("1024Mi", "1Gi", "f:limits", False),
        ("1024Mi", "1Gi", "", False),
        ("1024Mi", "1Gi", "f:metric/f:target/f:value", True),
        ("1024Mi", "1Gi", "f:target/f:values", False),
        ("some", "none", "f:limits/f:memory", False),
        ({"a": ""}, {}, "f:anything", True),
        ({"a": "x"}, {"a": "x", "b": {}}, "f:anything", True),
    ],
)
def test_what_a_server_rewrites_is_the_same(
    want: object, have: object, path: str, is_same: bool
) -> None:
    assert same(want, have, tuple(path.split("/"))) is is_same


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("500m", "0.5"),
        ("1e3", "1000"),
        ("2Ki", "2048"),
        (3, "3"),
        ("x", None),
        (True, None),
        ("1.2.3", None),
        ("1n", "1e-9"),
        ("1u", "1e-6"),
        ("1k", "1000"),
        ("1E", "1e18"),
        ("-1Mi", "-1048576"),
    ],
)
def test_quantities_have_exact_amounts(text: object, amount: str | None) -> None:
    found = quantity(text)

    assert (found if found is None else float(found)) == (amount and float(amount))


def test_a_record_tells_what_was_set_before_and_survives_being_left_out() -> None:
    full = deployment("default", minReadySeconds=3)
    first = recorded(full, full, AppliedRecord())
    partly = copy.deepcopy(full)
    del partly["spec"]["minReadySeconds"]

    second = record_of(recorded(partly, full, record_of(first)))

    assert record_of(first).is_of(full)
    assert not second.is_of(full)
    assert second.has(("f:spec", "f:minReadySeconds"), 3)
    assert not second.has(("f:spec", "f:paused"), True)


@pytest.mark.parametrize("text", ["", "v1", "v2.aa.", "v1.aa.!!!", "v1.aa.AAA="])
def test_a_record_that_somebody_broke_says_nothing(text: str) -> None:
    live = {"metadata": {"annotations": {APPLIED_ANNOTATION: text}}}

    assert record_of(live).paths == frozenset()


def test_a_field_that_cannot_be_changed_in_place_is_known(edited: dict[str, Any]) -> None:
    want = desired(selector={"matchLabels": {"app": "other"}})

    (fixed,) = forcing(id_of(edited), compare(want, edited))

    assert fixed.field == "spec.selector"


def test_a_set_is_named_after_the_fleet_alone() -> None:
    # sha256("fleet-home.fleet-reconciler.ConfigMap.") as KEP-3659 has it, and short enough
    # for a label.
    assert set_id("home") == "applyset-" + set_id("home")[9:-3] + "-v1"
    assert set_id("home") != set_id("lab")
    assert len(set_id("home")) <= 63
