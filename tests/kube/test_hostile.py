"""Objects of a cluster that somebody edited to break us: none of them ends a pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from reconciler.api.meta import HOLD_ANNOTATION
from reconciler.kube.diff.difference import compare
from reconciler.kube.diff.managed import owned, put_by_others, server_path
from reconciler.kube.diff.step import ObjectStep, step_of
from reconciler.kube.diff.untouched import is_untouched
from reconciler.kube.objects import INPUTS_ANNOTATION, SERVICE_LABEL, id_of
from reconciler.kube.running.instances import instances
from tests.support.builders import ref
from tests.support.kube_live import as_applied
from tests.support.kube_world import TARGET, deployment

Edit = Callable[[dict[str, Any]], None]


def managed(**row: Any) -> Edit:
    rows = {"manager": "x", "operation": "Update", "fieldsV1": {}, **row}
    return lambda metadata: metadata["managedFields"].append(rows)


def ours(fields: Any) -> Edit:
    """In the place of what we own."""

    def edit(metadata: dict[str, Any]) -> None:
        for row in metadata["managedFields"]:
            row["fieldsV1"] = fields

    return edit


KEYS = ["k:{", "k:5", "k:[1]", "k:" + "[" * 5_000, "k:{}", "v:", "i:x", "i:-9", "f", "", "x:1", "."]


def at(key: str) -> dict[str, Any]:
    """Where we look: beside what is right, in a list and above it."""
    lists = {"f:containers": {key: {"f:image": {}}, 'k:{"name":"engine"}': {"f:image": {}}}}
    return {key: {}, "f:spec": {key: {}, "f:template": {"f:spec": lists, key: {key: {}}}}}


def nested(levels: int) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for _ in range(levels):
        made = {"f:spec": made}
    return made


def inputs(text: str) -> Edit:
    return lambda metadata: metadata["annotations"].update({INPUTS_ANNOTATION: text})


EDITS = {
    "year 0": managed(time="0000-06-01T00:00:00Z"),
    "no time": managed(time="yesterday"),
    "no set of fields": managed(fieldsV1=["f:spec"]),
    "deep list": inputs("[" * 100_000),
    "deep map": inputs('{"a":' * 100_000),
    "no models": inputs('{"models": 5}'),
    "no model": inputs('{"models": [5]}'),
    "no name": inputs('{"models": [{}]}'),
    "no address": inputs('{"listen": 5}'),
    "no lifecycle": inputs('{"lifecycle": "x"}'),
    "null": inputs('{"lifecycle": null}'),
    "no pool": inputs('{"pool": "x"}'),
    "no settings": inputs('{"settings": ["x"]}'),
    "no text": inputs('{"a": "\\ud800"}'),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_object_with_hostile_metadata_is_still_judged(edit: Edit) -> None:
    want = deployment("default")
    live = as_applied(want)
    live["metadata"].setdefault("labels", {})[SERVICE_LABEL] = "chat"
    edit(live["metadata"])

    step_of(ObjectStep(TARGET, id_of(want), ref("chat"), None), want, live, False, {})
    is_untouched(want, live)
    (found,) = instances(TARGET, {id_of(live): live}, {}, {})

    assert found.inputs == {}


SETS: list[Any] = [
    *map(at, KEYS),
    {"f:spec": 5, "f:metadata": ["f:name"]},
    {"f:spec": {"f:template": 5}, "f:metadata": {"f:annotations": "x"}},
    nested(900),
    {},
]


@pytest.mark.parametrize("of_us", [False, True], ids=["another's", "our own"])
@pytest.mark.parametrize("fields", SETS, ids=range(len(SETS)))
def test_what_is_no_set_of_fields_ends_no_look_at_an_object(fields: Any, of_us: bool) -> None:
    """What it says is nothing; where it was to say what is ours, nothing is."""
    want = deployment("default")
    live = as_applied(want)
    live["spec"]["replicas"] = 7
    edit = ours(fields) if of_us else managed(fieldsV1=fields)
    edit(live["metadata"])

    step_of(ObjectStep(TARGET, id_of(want), ref("chat"), None), want, live, False, {})
    found = [difference.field for difference in compare(want, live)]

    assert ("spec.replicas" in found) is of_us
    assert is_untouched(want, live) is (not fields and not of_us)
    assert all(server_path(difference.path) for difference in compare(want, live))
    assert owned(live).keys() <= live.keys()
    assert put_by_others(live, HOLD_ANNOTATION) is None
