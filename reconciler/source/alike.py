"""Notes that many documents get alike: one for the fleet. Pure.

A repository of LLMKube's documents has the same fields in each of them, and a line of its own for
each says nothing more; finding their places takes as long as checking the documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from reconciler.api.meta import ObjectRef
from reconciler.api.problem import RULES, Finding, Severity

_SHOWN = 5  # documents named in a note


def without_repeats(findings: Iterable[Finding]) -> Iterator[Finding]:
    """The same with one note, at the first document, in the place of those that say the same of the
    same field of a kind."""
    alike: dict[tuple[str, str, str, str], list[Finding]] = {}
    for finding in findings:
        if RULES[finding.rule].severity is not Severity.NOTE:
            yield finding
            continue
        same = (finding.rule, finding.ref.kind, finding.field, finding.message)
        alike.setdefault(same, []).append(finding)
    for first, *others in alike.values():
        more = _more([other.ref for other in others])
        yield replace(first, message=f"{first.message}{more}") if more else first


def _more(others: list[ObjectRef]) -> str:
    if not others:
        return ""
    named = ", ".join(ref.label for ref in others[:_SHOWN])
    rest = f" and {len(others) - _SHOWN:,} more" if len(others) > _SHOWN else ""
    return f" (the same in {named}{rest})"
