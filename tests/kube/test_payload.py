"""What is sent of a manifest: what is left to others, and what waits."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from reconciler.kube.diff.difference import Cause, Difference, compare
from reconciler.kube.diff.managed import entries, fields_of
from reconciler.kube.diff.payload import as_before, pointer, without
from reconciler.kube.inventory import labelled
from reconciler.kube.objects import INPUTS_DIGEST_ANNOTATION, MANAGER, RENDER_DIGEST_ANNOTATION
from tests.support.kube_world import changed, deployment

_EDITED = Path(__file__).parents[1] / "cases" / "kube_objects" / "deployment-edited.json"
_HTTP = 'k:{"port":80,"protocol":"TCP"}'
_OTHER = 'k:{"port":81,"protocol":"TCP"}'


def owning(path: tuple[str, ...]) -> dict[str, Any]:
    """A live object of which we own one field."""
    fields: dict[str, Any] = {}
    for key in reversed(path):
        fields = {key: fields}
    row = {"manager": MANAGER, "operation": "Apply", "fieldsV1": fields}
    return {"metadata": {"managedFields": [row]}}


@pytest.mark.parametrize(
    ("path", "value", "sent"),
    [
        ((_HTTP, "f:name"), None, [{"port": 80}, {"port": 90}]),
        ((_HTTP, "f:name"), "web", [{"port": 80, "name": "web"}, {"port": 90}]),
        ((_HTTP,), None, [{"port": 90}]),
        ((_HTTP,), {"port": 80}, [{"port": 80}, {"port": 90}]),
        ((_OTHER,), {"port": 81}, [{"port": 80, "name": "http"}, {"port": 90}, {"port": 81}]),
        ((_OTHER, "f:name"), None, [{"port": 80, "name": "http"}, {"port": 90}]),
        (
            (_OTHER, "f:name"),
            "web",
            [
                {"port": 80, "name": "http"},
                {"port": 90},
                {"port": 81, "protocol": "TCP", "name": "web"},
            ],
        ),
    ],
)
def test_what_is_left_to_others_keeps_the_value_that_we_share_and_else_is_not_sent(
    path: tuple[str, ...], value: object, sent: list[object]
) -> None:
    """The items of the manifest omit the protocol, which has a default."""
    at = ("f:spec", "f:ports", *path)
    want = {"metadata": {}, "spec": {"ports": [{"port": 80, "name": "http"}, {"port": 90}]}}
    left = Difference(at, value, "declared", Cause.CONTROLLER)

    made = without(want, owning(at if value is not None else ("f:spec",)), [left])

    assert made == {"metadata": {}, "spec": {"ports": sent}}


@pytest.mark.parametrize(
    ("value", "spec"), [(None, {}), (2, {"a": {"b": [{"name": "c", "d": 2}]}})]
)
def test_what_holds_a_shared_value_is_made_for_it(value: object, spec: object) -> None:
    at = ("f:spec", "f:a", "f:b", 'k:{"name":"c"}', "f:d")
    left = Difference(at, value, 1, Cause.CONTROLLER)

    assert without({"spec": {}}, owning(at if value else ("f:x",)), [left]) == {"spec": spec}


def rendered(manifest: dict[str, Any], inputs: str | None, render: str | None) -> dict[str, Any]:
    made = copy.deepcopy(manifest)
    notes = made["metadata"].setdefault("annotations", {})
    told = {INPUTS_DIGEST_ANNOTATION: inputs, RENDER_DIGEST_ANNOTATION: render}
    notes |= {name: digest for name, digest in told.items() if digest is not None}
    return made


def test_what_waits_is_sent_as_it_was_applied_with_what_others_took_from_us() -> None:
    """kubectl-edit changed the memory limit; our rendering has another image."""
    live = rendered(json.loads(_EDITED.read_text()), "same", "old")
    want = rendered(
        changed(labelled(deployment("default"), "home", "chat"), image="e:2"), "same", "new"
    )

    made = as_before(want, live)

    (container,) = made["spec"]["template"]["spec"]["containers"]
    (before,) = live["spec"]["template"]["spec"]["containers"]
    (declared,) = want["spec"]["template"]["spec"]["containers"]
    assert container["image"] == before["image"] != declared["image"]
    assert container["resources"]["limits"] == declared["resources"]["limits"]
    assert made["metadata"]["annotations"][RENDER_DIGEST_ANNOTATION] == "old"
    assert {d.field.rpartition(".")[2] for d in compare(made, live) if d.cause is Cause.DRIFT} == {
        "memory"
    }


@pytest.mark.parametrize(
    ("want", "live"),
    [
        (("same", "new"), ("other", "old")),
        (("same", "new"), ("same", "new")),
        (("same", "new"), ("same", None)),
        ((None, "new"), (None, "old")),
    ],
)
def test_nothing_waits_where_inputs_changed_or_are_not_known_or_the_rendering_is_the_same(
    want: tuple[str | None, str | None], live: tuple[str | None, str | None]
) -> None:
    there = rendered(json.loads(_EDITED.read_text()), *live)
    wanted = rendered(changed(labelled(deployment("default"), "home", "chat"), image="e:2"), *want)

    assert as_before(wanted, there) is wanted


def test_a_pointer_escapes_names_and_refuses_what_is_not_there() -> None:
    live = {"metadata": {"labels": {"a/b~c": "x"}}, "spec": {"ports": [{"port": 80}]}}

    assert pointer(live, ("f:metadata", "f:labels", "f:a/b~c")) == "/metadata/labels/a~1b~0c"
    assert pointer(live, ("f:spec", "f:ports", _HTTP, "f:port")) == "/spec/ports/0/port"
    with pytest.raises(KeyError):
        pointer(live, ("f:spec", "f:ports", _OTHER))


def nested(levels: int) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for _ in range(levels):
        fields = {"f:a": fields}
    return fields


@pytest.mark.parametrize(
    ("fields", "read"),
    [
        ({"f:a": {".": {}, "f:b": {}}}, {"f:a": {".": {}, "f:b": {}}}),
        ({"f:a": {}, "b": {}, "f:c": 1}, {"f:a": {}}),
        ({"f:a": {"k:no json": {}, "k:[]": {}, 'i:"x"': {}, "x:1": {}}}, None),
        ({'k:{"a":1}': {}, "v:1": {}, "i:1": {}}, {'k:{"a":1}': {}, "v:1": {}, "i:1": {}}),
        (nested(100), nested(100)),
        (nested(101), None),
    ],
    ids=["itself", "no keys", "no values", "keys", "deep", "too deep"],
)
def test_keys_that_no_server_writes_are_left_out_of_who_owns_what(
    fields: dict[str, Any], read: dict[str, Any] | None
) -> None:
    row = {"manager": "m", "operation": "Apply", "fieldsV1": fields}

    found = [entry.fields for entry in entries({"metadata": {"managedFields": [row]}})]

    assert found == ([read] if read else [])


@pytest.mark.parametrize(
    ("row", "is_applied"),
    [
        ({"operation": "Apply"}, True),
        ({"operation": "Update"}, False),
        ({"operation": "Apply", "subresource": "status"}, False),
        ({"operation": "Update", "subresource": "status"}, False),
        ({"operation": "Apply", "manager": "flux"}, False),
    ],
)
def test_what_we_applied_to_the_object_itself_is_ours(
    row: dict[str, str], is_applied: bool
) -> None:
    entry = {"manager": MANAGER, "fieldsV1": {"f:a": {}}} | row

    assert fields_of({"metadata": {"managedFields": [entry]}}) == (
        {"f:a": {}} if is_applied else {}
    )
