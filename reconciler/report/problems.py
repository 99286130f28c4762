"""Problems for people and for machines: text, JSON, SARIF, GitHub annotations, markdown. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from reconciler.api.problem import RULES, Counts, Problem, Severity, short_field
from reconciler.report.links import NO_LINKS, Links, uri_path
from reconciler.report.markdown import Passage, Section, code, cut, link, prose
from reconciler.report.terminal import counted, is_long, printable

_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {
    Severity.ERROR: "error",
    Severity.BLOCKED: "error",
    Severity.WARNING: "warning",
    Severity.NOTE: "note",
}
_ANNOTATIONS = _LEVELS | {Severity.NOTE: "notice"}  # as GitHub calls it
CHECK_TITLE = "### Fleet check"
_ORDER = tuple(Severity)
_HARMLESS = (Severity.WARNING, Severity.NOTE)


def is_valid(problems: Iterable[Problem]) -> bool:
    """No error and nothing blocked: what `validate` answers with exit code 0."""
    return all(problem.severity in _HARMLESS for problem in problems)


def as_text(problems: Sequence[Problem], counts: Counts, _links: Links = NO_LINKS) -> str:
    """One line a problem, `path:line:column field: message (severity Rule)`, what makes a fleet
    invalid first, and the totals last; where there are many lines, at both ends."""
    lines = [_line(problem) for problem in sorted(problems, key=_gravity)]
    totals = _summary(problems, counts)
    head = [totals] if is_long(lines) else []
    return "".join(f"{line}\n" for line in (*head, *lines, totals))


def as_json(problems: Sequence[Problem], _: Counts, _links: Links = NO_LINKS) -> str:
    """`{valid, problems[{path, line, column, field, severity, rule, message}]}`."""
    listed = [
        {
            "path": problem.path,
            "line": problem.line,
            "column": problem.column,
            "field": problem.field,
            "severity": problem.severity.value,
            "rule": problem.rule,
            "message": printable(problem.message),
        }
        for problem in problems
    ]
    # ASCII: a path need not be Unicode, and half a character has no place in UTF-8.
    return json.dumps({"valid": is_valid(problems), "problems": listed}, indent=2) + "\n"


def as_sarif(problems: Sequence[Problem], _: Counts, _links: Links = NO_LINKS) -> str:
    """SARIF 2.1.0, as code scanning services read it. `ruleIndex` points into the whole table."""
    rules = list(RULES.values())
    index = {rule.id: i for i, rule in enumerate(rules)}
    driver = {
        "name": "fleet-reconciler",
        "rules": [
            {
                "id": rule.id,
                "shortDescription": {"text": rule.summary},
                "defaultConfiguration": {"level": _LEVELS[rule.severity]},
            }
            for rule in rules
        ],
    }
    results = [
        {
            "ruleId": problem.rule,
            "ruleIndex": index[problem.rule],
            "level": _LEVELS[problem.severity],
            "message": {"text": _message(problem)},
            "locations": [{"physicalLocation": _location(problem)}],
        }
        for problem in problems
    ]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    whole = {"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(whole, indent=2) + "\n"


def as_github(problems: Sequence[Problem], _: Counts, _links: Links = NO_LINKS) -> str:
    """Workflow commands: annotations on the lines of a pull request."""
    return "".join(
        f"::{_ANNOTATIONS[problem.severity]} file={_property(problem.path)},line={problem.line},"
        f"col={problem.column},title={_property(problem.rule)}::{_data(_message(problem))}\n"
        for problem in problems
    )


def as_markdown(
    problems: Sequence[Problem], counts: Counts | None = None, links: Links = NO_LINKS
) -> str:
    """The comment of a pull request: what makes a fleet invalid, and the rest to unfold."""
    ordered = sorted(problems, key=_gravity)
    grave = [_item(p, links) for p in ordered if p.severity not in _HARMLESS]
    rest = [_item(p, links) for p in ordered if p.severity in _HARMLESS]
    head = f"{CHECK_TITLE}\n\n**{_summary(problems, counts)}.**\n\n"
    opened = "<details><summary>Warnings and notes</summary>\n\n"
    return cut(
        head,
        (Section("", grave, "problem"), Section(opened, rest, "warning")),
        "</details>\n" if rest else "",
    )


class Report(Protocol):
    """A format of problems."""

    def __call__(
        self, problems: Sequence[Problem], counts: Counts, links: Links = NO_LINKS, /
    ) -> str: ...


REPORTS: Mapping[str, Report] = {
    "text": as_text,
    "json": as_json,
    "sarif": as_sarif,
    "github": as_github,
    "markdown": as_markdown,
}


def _gravity(problem: Problem) -> int:
    return _ORDER.index(problem.severity)


def _line(problem: Problem) -> str:
    place = f"{problem.path}:{problem.line}:{problem.column}"
    field = f" {short_field(problem.field)}" if problem.field else ""
    return printable(f"{place}{field}: {problem.message} ({problem.severity} {problem.rule})")


def _item(problem: Problem, links: Links) -> Passage:
    place = code(f"{problem.path}:{problem.line}")
    address = links.to_line(problem.path, problem.line, links.head)
    field = f" {code(short_field(problem.field))}" if problem.field else ""
    about = f"({problem.severity} {problem.rule})"
    linked = f"- {link(place, address)}{field}"
    text = f"{linked}: {prose(problem.message)} {about}\n"
    return Passage(text, f"- {place} {about}\n")


def _summary(problems: Sequence[Problem], counts: Counts | None) -> str:
    """`counts` None: not known."""
    looked_at = counts and (
        f"{counted('document', counts.documents)} in {counted('file', counts.files)}"
    )
    counts_by_severity = [
        (severity, sum(p.severity is severity for p in problems)) for severity in Severity
    ]
    parts = [
        f"{count} blocked" if severity is Severity.BLOCKED else counted(severity, count)
        for severity, count in counts_by_severity
        if count
    ]
    parts += [looked_at] if looked_at else []
    return f"{'valid' if is_valid(problems) else 'not valid'}: {', '.join(parts)}"


def _message(problem: Problem) -> str:
    return printable(
        f"{short_field(problem.field)}: {problem.message}" if problem.field else problem.message
    )


def _location(problem: Problem) -> dict[str, object]:
    return {
        "artifactLocation": {"uri": uri_path(problem.path)},
        "region": {"startLine": problem.line, "startColumn": problem.column},
    }


def _data(text: str) -> str:
    """What follows `::` ends with the line, and % begins an escape there."""
    return printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Within the command `:` and `,` end a property too."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
