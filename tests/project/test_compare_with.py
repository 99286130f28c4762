"""What counts as a difference between two versions, and the fleets that they are asked about."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from reconciler.console.edge import Exit
from tests.compare_with import Case, main, questions_of, written_cases
from tests.support.fleets import load_texts, small_fleet
from tests.support.random_fleets import random_fleet
from tests.support.two_versions import Answer, Difference, differences, summary, table

_CASES = Path(__file__).parents[1] / "cases"


def problem(line: int = 3, **other: Any) -> dict[str, Any]:
    place = {"path": "a.yaml", "line": line, "column": 1, "field": "spec.x", "rule": "Schema"}
    return {**place, "severity": "error", "message": "is wrong", **other}


def validated(*problems: Mapping[str, Any], code: int = 1, err: str = "") -> Answer:
    return Answer(code, json.dumps({"valid": not problems, "problems": problems}), err)


def found(old: Answer, new: Answer, *, messages: bool = False) -> list[tuple[str, str, str]]:
    differing = differences("case", "validate", old, new, messages=messages)
    return [(d.where, d.old, d.new) for d in differing]


def test_other_words_for_the_same_problem_differ_only_where_messages_are_compared() -> None:
    old = validated(problem(), err="wrong\n")
    new = validated(problem(message="is not valid"), err="not valid\n")

    assert found(old, new) == []
    assert [where for where, _, _ in found(old, new, messages=True)] == [
        "/err",
        "/out/problems/a.yaml:3 Schema/0/message",
    ]


@pytest.mark.parametrize(
    "other", [{"line": 4}, {"rule": "Syntax"}, {"severity": "warning"}, {"column": 2}]
)
def test_another_line_rule_severity_or_column_is_a_difference(other: dict[str, Any]) -> None:
    assert found(validated(problem()), validated(problem(**other)))


def test_one_more_problem_is_one_difference() -> None:
    old, new = validated(problem(3), problem(9)), validated(problem(1), problem(3), problem(9))

    assert [where for where, _, _ in found(old, new)] == ["/out/problems/a.yaml:1 Schema"]


def test_the_exit_code_and_each_written_file_are_compared() -> None:
    old, new = Answer(0, "", "", {"a": "1"}), Answer(1, "", "", {"a": "2", "b": "3"})

    assert found(old, new) == [
        ("/exit", "0", "1"),
        ("/file/a", '"1"', '"2"'),
        ("/file/b", "(nothing)", '"3"'),
    ]


def test_a_change_that_is_no_longer_planned_leaves_the_others_as_they_were() -> None:
    refs = [{"kind": "InferenceService", "namespace": "default", "name": name} for name in "ab"]
    changes = [{"target": "node/mac", "ref": ref, "action": "create"} for ref in refs]
    old, new = (Answer(2, json.dumps({"changes": c}), "") for c in (changes, changes[1:]))

    (only,) = found(old, new)

    assert only[0] == "/out/changes/node/mac InferenceService/default/a"


def test_what_differs_alike_in_many_answers_is_one_row() -> None:
    alike = [Difference(case, "validate -o json", "/exit", "0", "1") for case in "ab"]

    assert list(table(alike)) == ["2 x a: validate -o json", "    /exit: 0 -> 1"]
    assert summary(alike, {"validate": 3}, 3).endswith("answers that differ: validate 2 of 3")


def test_random_fleets_are_the_same_each_time_valid_and_not() -> None:
    made = [random_fleet(Random(seed)) for seed in range(100)]

    assert made == [random_fleet(Random(seed)) for seed in range(100)]
    valid = [load_texts(*after.values()).fleet is not None for _, after in made]
    assert 30 < sum(valid) < 90


def test_every_case_that_is_a_fleet_is_asked_about() -> None:
    rooms = {case.name.partition("/")[0] for case in written_cases()}

    not_fleets = {
        "alerts",
        "plans",
        "kube_objects",
        "llmkube",
        "machines",
        "memory",
        "other-crds",
        "process",
        "seeds",
        "suite",
    }
    assert rooms == {path.name for path in _CASES.iterdir()} - not_fleets | {"fleet-example"}


def test_a_fleet_is_asked_for_its_node_and_its_services() -> None:
    asked = [" ".join(words) for words in questions_of(Case("small", {}, small_fleet()))]

    assert "--dry-run --local=mac -o json" in asked
    assert "explain chat -o json" in asked


@pytest.mark.e2e
def test_the_code_of_the_last_commit_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["HEAD", "--only", "kube/gpu-single"]) in (Exit.OK, Exit.FAILED)

    said = capsys.readouterr().out
    assert "1 cases; answers that differ: validate 0 of 1" in said
