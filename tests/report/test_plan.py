"""What a plan looks like: exact texts, so that a change of wording is a reviewed diff."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.api.meta import ObjectRef
from reconciler.core.observation import Location, Observation, TargetState
from reconciler.core.plan import SENSITIVE, Action, Blocked, Change, FieldChange, ObjectName, Plan
from reconciler.core.planner import Policy, make_plan
from reconciler.fleet.workload import NodePool, Workload
from reconciler.report.fields import pool_label
from reconciler.report.legend import BY_ACTION, legend_text
from reconciler.report.plan_json import plan_json
from reconciler.report.plan_text import plan_text
from reconciler.report.terminal import Style, printable
from tests.support.builders import (
    GIB,
    FixedCauses,
    instance,
    model_file,
    need,
    observed,
    ref,
    workload,
)

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "plan.json").read_text())
CASES = Path(__file__).parents[1] / "cases" / "plans"
NOW = 1_800_000_000.0


def busy_plan() -> Plan:
    """One of everything that a node can show."""
    old = {name: workload(name, needs=need(GIB)) for name in ("stay", "grow", "slow", "gone")}
    wanted: list[Workload] = [
        old["stay"],
        workload("grow", settings={"contextSize": 16384}, needs=need(2 * GIB)),
        workload("slow", lifecycle={"rollout.drainTimeout": 5.0}, needs=need(GIB)),
        workload(
            "new", needs=need(GIB), models=(model_file(sha256="ef" * 32, size_bytes=3 * GIB),)
        ),
        workload("engineless", runtime="mlx-server"),
    ]
    seen = observed(
        *(instance(name, of=of) for name, of in old.items()),
        missing={"mlx-server": "no engine for mlx-server"},
        cached=frozenset({"ab" * 32}),
    )
    held = Blocked(ref("large"), "MemoryFits", "needs 40 GiB", None, None, (ref("large"),))
    return make_plan("0" * 40, wanted, [held], seen, Policy(), FixedCauses())


def test_a_plan_reads_like_this() -> None:
    expected = CASES / "busy.txt"

    told = plan_text(busy_plan(), NOW)

    if os.environ.get("FLEET_UPDATE_CASES"):
        expected.write_text(told)
    assert told == expected.read_text()


def test_the_marks_are_explained_where_people_look() -> None:
    root = Path(__file__).parents[2]
    marks = {line.split()[0] for line in legend_text().splitlines()}

    assert marks == {"+", "~", "-/+", ">", "-", "!", "=", "?", "x", "."}
    assert {*Action} <= BY_ACTION.keys()
    for page in ("README.md", "docs/central.md"):
        assert f"```\n{legend_text()}\n```" in (root / page).read_text()


@pytest.mark.parametrize("columns", [60, 80, 110])
def test_no_line_of_a_plan_is_wider_than_the_terminal_and_no_word_is_broken(columns: int) -> None:
    wide, narrow = (plan_text(busy_plan(), NOW, width=w) for w in (None, columns))
    coloured = plan_text(busy_plan(), NOW, Style(colour=True), columns)

    assert max(map(len, narrow.splitlines())) <= columns
    assert narrow.split() == wide.split()
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured).split("\n") == narrow.split("\n")


def test_what_does_not_fit_a_line_hangs_below_it() -> None:
    held = Blocked(ref("large"), "MemoryFits", "needs 40 GiB of 10 GiB that are there", None)
    made = make_plan("r", [], [held], observed(), Policy(), FixedCauses())

    below = plan_text(made, NOW, width=40).splitlines()[2:4]

    assert below == [
        "        MemoryFits: needs 40 GiB of",  # and a number keeps its unit
        "          10 GiB that are there",
    ]


def test_node_2_is_before_node_10() -> None:
    states = (TargetState(f"node/node-{n}", reachable=True) for n in (10, 2, 1))
    seen = Observation({state.target: state for state in states}, ())

    text = plan_text(make_plan("r", [], [], seen, Policy(), FixedCauses()), NOW)

    assert re.findall(r"node-\d+", text) == ["node-1", "node-2", "node-10"]


def test_the_memory_of_a_node_is_called_so_unless_it_has_more_than_one_pool() -> None:
    assert pool_label("host", {"host"}) == pool_label("unified", ()) == "memory"
    assert pool_label("host", {"host", "device0"}) == "host"
    assert pool_label("device0", {"device0"}) == "device0"


def test_nothing_to_do_is_one_calm_line_a_node() -> None:
    made = make_plan("r", [workload()], [], observed(instance()), Policy(), FixedCauses())

    assert (
        plan_text(made, NOW)
        == """\
node mac                         1 unchanged
Plan: nothing to do, 1 unchanged.
"""
    )


def test_a_service_that_was_stopped_by_hand_is_a_note_and_no_change() -> None:
    chat = workload("chat")
    of_another_fleet = {ref("search"): "ab"}
    seen = observed(stopped={ref("chat"): chat.inputs_digest} | of_another_fleet)
    made = make_plan("abc", [chat], [], seen, Policy(), FixedCauses())

    text = plan_text(made, 0.0)

    assert "search" not in text
    assert "  .   default/chat\n        stopped by a person: on the node, `fleet-agent" in text
    assert made.exit_code == 0
    (stopped,) = plan_json(made)["stopped"]
    assert (stopped["target"], stopped["ref"]["name"]) == ("node/mac", "chat")
    assert stopped["message"] in text


def test_the_last_line_counts_what_is_to_stop() -> None:
    idle = workload("chat", suspended=True)
    seen = observed(instance("chat", of=workload("chat")))
    made = make_plan("r", [idle], [], seen, Policy(), FixedCauses())

    assert plan_text(made, NOW).splitlines()[-1] == ("Plan: 1 to stop.")
    assert plan_json(made)["summary"]["stop"] == 1


def test_a_service_that_is_blocked_for_two_reasons_is_counted_once() -> None:
    reasons = ("NodeUnavailable", "NeedsConfirmation")
    held = [Blocked(ref("chat"), reason, "why", None) for reason in reasons]
    made = make_plan("r", [], held, observed(), Policy(), FixedCauses())

    text = plan_text(made, NOW)

    assert text.startswith("blocked 1\n")
    assert text.endswith("\nPlan: 1 blocked.\n")
    assert all(f"{reason}: why" in text for reason in reasons)


def test_a_long_plan_shows_its_totals_and_what_is_blocked_at_both_ends() -> None:
    silent = TargetState("node/zoo", False, message="connection refused")
    seen = observed()
    held = [Blocked(ref(f"large-{n}"), "MemoryFits", "too large", None) for n in range(7)]
    wanted = [workload(f"new-{n}") for n in range(20)]
    targets = {**seen.targets, "node/zoo": silent}
    made = make_plan("r", wanted, held, Observation(targets, ()), Policy(), FixedCauses())

    lines = plan_text(made, NOW).splitlines()

    totals = "Plan: 20 to create, 7 blocked. Download 1000 B."
    assert (lines[0], lines[-1]) == (totals, totals)
    assert lines[1] == "blocked 7"
    heads = [line.split()[1] for line in lines if line.startswith("node ")]
    assert heads == ["zoo", "mac"]
    assert lines[-3:-1] == [
        "blocked, see the top: default/large-0, default/large-1, default/large-2, default/large-3,"
        " default/large-4 and 2 more",
        "did not answer, see the top: node zoo",
    ]


def test_a_node_that_does_not_answer_shows_since_when() -> None:
    state = TargetState("node/mac", False, seen_at=NOW - 7800, message="connection refused")
    seen = Observation({"node/mac": state}, ())

    made = make_plan("r", [workload()], [], seen, Policy(), FixedCauses())

    assert (
        plan_text(made, NOW)
        == """\
node mac (last seen 2 h ago)     1 unknown
        connection refused
  ?   default/chat                             services/chat.yaml:1   ccccccc
Plan: 1 unknown.
"""
    )


def test_the_json_keeps_to_its_schema() -> None:
    document = json.loads(json.dumps(plan_json(busy_plan())))

    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert document["summary"] == {
        "create": 1,
        "update": 1,
        "replace": 1,
        "move": 0,
        "delete": 1,
        "stop": 0,
        "drift": 0,
        "unknown": 0,
        "deferred": 0,
        "unchanged": 1,
        "blocked": 2,
    }
    replaced = next(c for c in document["changes"] if c["action"] == "replace")
    assert replaced["source"] == {"file": "services/grow.yaml", "line": 7, "commit": "c" * 40}
    assert replaced["impact"]["memory"] == [
        {
            "pool": "host",
            "beforeBytes": 3 * GIB,
            "afterBytes": 4 * GIB,
            "peakBytes": 4 * GIB,
            "budgetBytes": 10 * GIB,
        }
    ]


def test_the_same_inputs_give_the_same_bytes() -> None:
    assert json.dumps(plan_json(busy_plan())) == json.dumps(plan_json(busy_plan()))
    assert plan_text(busy_plan(), NOW) == plan_text(busy_plan(), NOW)


def test_colour_adds_nothing_but_colour() -> None:
    coloured = plan_text(busy_plan(), NOW, Style(colour=True))

    assert "\x1b[" in coloured
    assert len(re.sub(r"\x1b\[\d+m", "", coloured).split()) == len(
        plan_text(busy_plan(), NOW).split()
    )


@given(st.text())
def test_nothing_that_a_file_holds_can_control_the_terminal(text: str) -> None:
    held = Blocked(ref("x"), "ModelUnreadable", text, None)
    made = make_plan("r", [], [held], observed(), Policy(), FixedCauses())

    shown = plan_text(made, NOW)

    assert all(char.isprintable() or char == "\n" for char in shown)
    assert len(shown.splitlines()) == 5
    assert printable(text).isprintable()


def cluster_plan() -> Plan:
    """A service that rolls, one that somebody edited, a Model, and objects of a node's service."""
    prod: dict[str, Any] = {"node": "edge-l4", "cluster": "prod", "pool": NodePool("cuda")}
    device = need(6 * GIB, 22 * GIB, pool="device0")
    old = {name: workload(name, needs=device, **prod) for name in ("chat-8b", "embed", "calm")}
    grown = need(7 * GIB, 22 * GIB, pool="device0")
    wanted = [
        workload("chat-8b", settings={"contextSize": 16384}, needs=grown, **prod),
        old["embed"],
        old["calm"],
    ]
    seen = Observation(
        {"cluster/prod": TargetState("cluster/prod", reachable=True)},
        tuple(instance(name, of=of, target="cluster/prod") for name, of in old.items()),
    )
    made = make_plan("0" * 40, wanted, [], seen, Policy(), FixedCauses())
    return made.joined(list(_objects()), unchanged={"cluster/prod": 1})


def _objects() -> Iterator[Change]:
    def change(action: Action, of: ObjectRef, reason: str, name: str, **more: Any) -> Change:
        api_version, kind = name.rsplit("/", 1)
        named = ObjectName(api_version, kind, of.namespace, of.name)
        return Change(action, "cluster/prod", of, reason, None, object=named, **more)

    yield change(Action.UPDATE, ref("chat-8b"), "ObjectChanged", "apps/v1/Deployment")
    edited = FieldChange("limits.memory", "16Gi", "12Gi", forces_restart=True)
    drifted = {"by": "kubectl-edit", "since": NOW - 840}
    yield change(
        Action.DRIFT, ref("embed"), "DriftedByOther", "apps/v1/Deployment", fields=(edited,),
        **drifted,
    )  # fmt: skip
    secret = FieldChange("env.HF_TOKEN", SENSITIVE, SENSITIVE, forces_restart=True)
    yield change(Action.UPDATE, ref("embed"), "ObjectChanged", "v1/ConfigMap", fields=(secret,))
    model = ObjectRef("Model", "default", "gemma")
    yield change(Action.CREATE, model, "Added", "inference.llmkube.dev/v1alpha1/Model")
    yield change(Action.CREATE, ref("rerank"), "ObjectMissing", "v1/Service")
    yield change(Action.CREATE, ref("rerank"), "ObjectMissing", "discovery.k8s.io/v1/EndpointSlice")
    for kind in ("inference.llmkube.dev/v1alpha1/InferenceService", "v1/Service"):
        made = change(Action.CREATE, ref("mini"), "Added", kind)
        yield replace(made, source=Location("services/mini.yaml", 1, "c" * 40))


def test_a_plan_of_a_cluster_reads_like_this() -> None:
    expected = CASES / "cluster.txt"

    told = plan_text(cluster_plan(), NOW)

    if os.environ.get("FLEET_UPDATE_CASES"):
        expected.write_text(told)
    assert told == expected.read_text()


def test_a_service_counts_once_a_cluster_whatever_its_objects_need() -> None:
    document = json.loads(json.dumps(plan_json(cluster_plan())))

    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    counted = {name: n for name, n in document["summary"].items() if n}
    assert counted == {"create": 3, "update": 1, "drift": 1, "unchanged": 1}
    assert len(document["changes"]) == 9
    assert document["changes"][2]["object"] == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "namespace": "default",
        "name": "embed",
    }
    assert document["changes"][2]["by"] == "kubectl-edit"
