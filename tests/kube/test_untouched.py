"""Which objects need no comparison: they are what we applied, and nobody else has a part in them.
And what is noted of memory on one that stays."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.kube.diff.payload import as_sized
from reconciler.kube.diff.record import AppliedRecord, recorded
from reconciler.kube.diff.untouched import is_untouched
from reconciler.kube.inventory import labelled
from reconciler.kube.objects import AGENT_MANAGER, MANAGER, NEEDS_ANNOTATION
from tests.support.kube_world import deployment


def fields(value: object) -> dict[str, Any]:
    """As an API server writes the fields of what was applied."""
    if isinstance(value, Mapping):
        return {f"f:{name}": fields(part) for name, part in value.items()}
    named = isinstance(value, list) and all(isinstance(i, Mapping) and "name" in i for i in value)
    if not named or not isinstance(value, list):
        return {}
    return {"k:" + json.dumps({"name": item["name"]}): fields(item) for item in value}


def owner(manager: str, part: Mapping[str, Any], **more: str) -> dict[str, Any]:
    row = {"manager": manager, "operation": "Update", "fieldsType": "FieldsV1"}
    return row | more | {"fieldsV1": fields(part)}


def applied(*others: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what is desired, the live object that was made of it)"""
    want = labelled(deployment("default"), "home", "chat")
    want["spec"]["template"]["spec"]["containers"][0]["args"] = ["--verbose"]
    live = recorded(want, want, AppliedRecord())
    mine = owner(MANAGER, {k: v for k, v in live.items() if k != "apiVersion"}, operation="Apply")
    live["metadata"] = live["metadata"] | {"managedFields": [mine, *others]}
    return want, live


REPLICAS = {"spec": {"replicas": 2}}


@pytest.mark.parametrize(
    ("others", "untouched"),
    [
        ((), True),
        ((owner("kubectl-edit", REPLICAS),), False),
        ((owner("kubectl-label", {"metadata": {"labels": {"team": "a"}}}),), True),
        ((owner("kube-controller-manager", REPLICAS),), True),
        ((owner(AGENT_MANAGER, REPLICAS),), True),
        ((owner("kubectl-scale", REPLICAS, subresource="scale"),), True),
        ((owner(MANAGER, REPLICAS, operation="Apply"),), False),
    ],
    ids=["nobody", "spec", "a label", "controller", "agent", "scale", "ours twice"],
)
def test_whose_part_of_an_object_asks_for_a_comparison(
    others: tuple[dict[str, Any], ...], untouched: bool
) -> None:
    want, live = applied(*others)

    assert is_untouched(want, live) is untouched


def lists(live: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the pod that we own fields of, its container)"""
    pod = live["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:template"]["f:spec"]
    (engine,) = pod["f:containers"].values()
    return pod, engine


@pytest.mark.parametrize("key", ["k:no json", "k:[]", 'k:{"name":"other"}', "engine"])
def test_an_item_of_a_list_that_we_do_not_own_by_its_key_is_compared(key: str) -> None:
    want, live = applied()
    pod, engine = lists(live)
    pod["f:containers"] = {key: engine}

    assert not is_untouched(want, live)


def test_plain_values_that_are_owned_by_keys_are_compared() -> None:
    want, live = applied()
    lists(live)[1]["f:args"] = {'k:{"name":"--verbose"}': {}}

    assert not is_untouched(want, live)


@pytest.mark.parametrize(
    ("known", "before", "noted"),
    [
        ("5", "3", "3"),  # a better estimate replaces no pod
        (None, "3", "3"),  # nor does a hub that is silent
        ("5", None, "5"),
        ("5", "5", "5"),
    ],
)
def test_the_memory_that_pods_were_sized_for_stays_noted(
    known: str | None, before: str | None, noted: str
) -> None:
    want, live = (labelled(deployment("default"), "home", "chat") for _ in range(2))
    for manifest, needs in ((want, known), (live, before)):
        annotations = manifest["metadata"].setdefault("annotations", {})
        annotations |= {NEEDS_ANNOTATION: needs} if needs else {}

    assert as_sized(want, live)["metadata"]["annotations"][NEEDS_ANNOTATION] == noted
