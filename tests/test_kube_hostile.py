"""Objects of a cluster that somebody edited to break us: none of them ends a pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from reconciler.kube.deciding.stepping import Step, step_of
from reconciler.kube.deciding.untouched import is_untouched
from reconciler.kube.instances import instances
from reconciler.kube.objects import INPUTS_ANNOTATION, SERVICE_LABEL, id_of
from tests.support.builders import ref
from tests.support.kube_live import as_applied
from tests.support.kube_world import TARGET, deployment

Edit = Callable[[dict[str, Any]], None]


def managed(**row: Any) -> Edit:
    rows = {"manager": "x", "operation": "Update", "fieldsV1": {}, **row}
    return lambda metadata: metadata["managedFields"].append(rows)


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
    "no text": inputs('{"a": "\\ud800"}'),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_object_with_hostile_metadata_is_still_judged(edit: Edit) -> None:
    want = deployment("default")
    live = as_applied(want)
    live["metadata"].setdefault("labels", {})[SERVICE_LABEL] = "chat"
    edit(live["metadata"])

    step_of(Step(TARGET, id_of(want), ref("chat"), None), want, live, False, {})
    is_untouched(want, live)
    (found,) = instances(TARGET, {id_of(live): live}, {}, {})

    assert found.inputs == {}
