"""What validate prints, in every format."""

from __future__ import annotations

import json

import pytest

from reconciler.api.problem import RULES, Counts, Problem, Severity
from reconciler.report.problems import REPORTS, as_github, as_json, as_sarif, as_text, is_valid
from reconciler.report.terminal import printable

COUNTS = Counts(files=2, documents=3, others=1)
ERROR = Problem(
    "a.yaml", 3, 5, "spec.modelRef", Severity.ERROR, "DanglingReference", 'no Model named "x"'
)
BLOCKED = Problem("b.yaml", 1, 1, "", Severity.BLOCKED, "MemoryFits", "needs 9 GiB of 8 GiB")
WARNING = Problem("c.yaml", 2, 1, "spec.router", Severity.WARNING, "FieldIgnored", "remove it")
NOTE = Problem("d.yaml", 4, 1, "spec.source", Severity.NOTE, "SizeUnknown", "later")
HOSTILE = Problem(
    "a\n::error::x\udcff%,:.yaml", 1, 1, "", Severity.ERROR, "Schema", "\x1b[2J\r\n::stop:: 100%"
)


def test_text_has_the_place_the_field_and_the_rule() -> None:
    assert as_text([ERROR, BLOCKED, WARNING], COUNTS) == (
        'a.yaml:3:5 spec.modelRef: no Model named "x" (error DanglingReference)\n'
        "b.yaml:1:1: needs 9 GiB of 8 GiB (blocked MemoryFits)\n"
        "c.yaml:2:1 spec.router: remove it (warning FieldIgnored)\n"
        "not valid: 1 error, 1 blocked, 1 warning, 3 documents in 2 files\n"
    )


def test_what_makes_a_fleet_invalid_is_first_and_many_lines_have_their_totals_at_both_ends() -> (
    None
):
    many = [NOTE] * 20

    lines = as_text([*many, WARNING, BLOCKED, ERROR], COUNTS).splitlines()

    totals = "not valid: 1 error, 1 blocked, 1 warning, 20 notes, 3 documents in 2 files"
    assert (lines[0], lines[-1]) == (totals, totals)
    assert [line.split(":")[0] for line in lines[1:5]] == ["a.yaml", "b.yaml", "c.yaml", "d.yaml"]


def test_text_says_that_nothing_is_wrong() -> None:
    assert as_text([], COUNTS) == "valid: 3 documents in 2 files\n"


@pytest.mark.parametrize(
    ("problems", "valid"),
    [
        ([], True),
        ([WARNING], True),
        ([NOTE, WARNING], True),
        ([BLOCKED], False),
        ([WARNING, ERROR], False),
    ],
)
def test_only_errors_and_blocked_objects_make_a_fleet_invalid(
    problems: list[Problem], valid: bool
) -> None:
    assert is_valid(problems) is valid


def test_what_is_not_known_yet_is_no_warning_anywhere() -> None:
    sarif = json.loads(as_sarif([NOTE], COUNTS))["runs"][0]

    assert as_text([NOTE], COUNTS).endswith("valid: 1 note, 3 documents in 2 files\n")
    assert as_github([NOTE], COUNTS).startswith("::notice file=d.yaml,line=4,")
    assert sarif["results"][0]["level"] == "note"


def test_json_has_exactly_the_promised_keys() -> None:
    told = json.loads(as_json([ERROR], COUNTS))

    assert told == {
        "valid": False,
        "problems": [
            {
                "path": "a.yaml",
                "line": 3,
                "column": 5,
                "field": "spec.modelRef",
                "severity": "error",
                "rule": "DanglingReference",
                "message": 'no Model named "x"',
            }
        ],
    }


def test_sarif_names_every_rule_and_points_into_the_table() -> None:
    run = json.loads(as_sarif([ERROR, BLOCKED, WARNING], COUNTS))["runs"][0]

    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert rules == list(RULES)
    assert [rules[r["ruleIndex"]] for r in run["results"]] == [
        p.rule for p in (ERROR, BLOCKED, WARNING)
    ]
    assert [r["level"] for r in run["results"]] == ["error", "error", "warning"]
    assert run["results"][0]["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "a.yaml"},
        "region": {"startLine": 3, "startColumn": 5},
    }


def test_sarif_paths_are_uri_references() -> None:
    problem = Problem("models/ä b:#%.yaml", 1, 1, "", Severity.ERROR, "Schema", "x")

    result = json.loads(as_sarif([problem], COUNTS))["runs"][0]["results"][0]

    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "models/%C3%A4%20b%3A%23%25.yaml"


def test_github_annotates_the_line() -> None:
    assert as_github([ERROR, WARNING], COUNTS) == (
        "::error file=a.yaml,line=3,col=5,title=DanglingReference"
        '::spec.modelRef: no Model named "x"\n'
        "::warning file=c.yaml,line=2,col=1,title=FieldIgnored::spec.router: remove it\n"
    )


def test_a_file_cannot_forge_a_workflow_command() -> None:
    lines = as_github([HOSTILE], COUNTS).splitlines()

    assert len(lines) == 1
    assert lines[0].startswith("::error file=a\\n%3A%3Aerror%3A%3Ax\\udcff%25%2C%3A.yaml,line=1")
    assert "100%25" in lines[0]


@pytest.mark.parametrize("name", REPORTS)
def test_no_control_character_reaches_a_terminal(name: str) -> None:
    text = REPORTS[name]([HOSTILE], COUNTS)

    text.encode()  # what is no Unicode cannot be printed
    assert all(char.isprintable() for char in text.replace("\n", ""))
    assert "\n::stop" not in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("::error file=a::b", r"\x3a:error file=a::b"),
        ("  ::set-output name=a::b", r"  \x3a:set-output name=a::b"),
        ("a ##[error]b", r"a #\x23[error]b"),
        ("##vso[task.complete]", r"#\x23vso[task.complete]"),
        ("###[warning]", r"##\x23[warning]"),
        ("std::vector ## [a]", "std::vector ## [a]"),
    ],
)
def test_what_a_ci_job_would_obey_is_only_shown(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_file_whose_name_is_a_command_of_a_ci_job_is_none_in_a_report() -> None:
    problem = Problem("::error ::x.yaml", 1, 1, "", Severity.ERROR, "YamlSyntax", "##[error]y")

    lines = as_text([problem], COUNTS).splitlines()

    assert not [line for line in lines if line.startswith("::") or "##[" in line]
