"""What a document says beside its mistakes: it is judged too, so that one run shows all that is
wrong. Pure."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from reconciler.api.kinds import KINDS
from reconciler.api.meta import Resource
from reconciler.api.problem import Finding
from reconciler.llmkube.translate import translated
from reconciler.source.mistakes import excluded_field, intended_field
from reconciler.source.places import field_path, is_within
from reconciler.source.validators import KindValidator
from reconciler.source.violation import Violation

_MOST_ROUNDS = 4  # a corrected field may have a wrong value, which then has a wrong item, ...
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Rest:
    """An object without its mistakes. `unsure` are the fields whose values are not known, `written`
    says under which field stands what a misspelt one was meant to be."""

    resource: Resource
    unsure: frozenset[str]
    written: tuple[tuple[str, str], ...] = ()

    @property
    def is_sure(self) -> bool:
        """Whether its mistakes are fields that are near to none: without them it says the same."""
        return not self.unsure and not self.written

    def reported(self, finding: Finding) -> Finding | None:
        """A finding about it, by the fields that are written; None: it may follow from a
        mistake."""
        if any(is_within(f, finding.field) or is_within(finding.field, f) for f in self.unsure):
            return None
        for right, wrong in self.written:
            if is_within(finding.field, right):
                field = wrong + finding.field[len(right) :]
                return Finding(finding.rule, finding.ref, field, finding.message)
        return finding


def rest_of(check: KindValidator, kind: str, content: dict[str, Any]) -> Rest | None:
    """What is left of a document that its schema refuses, if that is an object."""
    from pydantic import ValidationError

    left = copy.deepcopy(content)
    unsure: set[str] = set()
    written: list[tuple[str, str]] = []
    for _ in range(_MOST_ROUNDS):
        errors = list(check.violations(left))
        if not errors:
            break
        excluded = excluded_field(errors, left)
        for error in errors:
            if error.keyword == "additionalProperties":
                for name in error.details["unexpected"]:
                    _correct(check, left, error, name, excluded, unsure, written)
            elif error.keyword not in ("required", "oneOf") and len(error.path) > 1:
                unsure.add(_drop(left, error.path))
    ours = translated(kind, left)
    if ours:
        left = ours.content
        written += ours.written.items()
    try:
        return Rest(KINDS[kind].model_validate(left), frozenset(unsure), tuple(written))
    except ValidationError:
        return None


def _correct(
    check: KindValidator,
    left: dict[str, Any],
    error: Violation,
    name: str,
    excluded: str,
    unsure: set[str],
    written: list[tuple[str, str]],
) -> None:
    """Give a misspelt field its name; leave out one that is near to none."""
    inside = _at(left, error.path)
    if not isinstance(inside, dict) or name not in inside:
        return
    meant = intended_field(check, error, name, excluded).fields
    value = inside.pop(name)
    if len(meant) == 1 and meant[0][:-1] == error.path and meant[0][-1] not in inside:
        inside[str(meant[0][-1])] = value
        written.append((field_path(meant[0]), field_path([*error.path, name])))
    else:
        unsure.update(field_path(path) for path in meant)


def _drop(left: dict[str, Any], path: Path) -> str:
    """Remove a value; of a list all of it, as its places would shift."""
    while isinstance(path[-1], int):
        path = path[:-1]
    inside = _at(left, path[:-1])
    if isinstance(inside, dict):
        inside.pop(str(path[-1]), None)
    return field_path(path)


def _at(content: Any, path: Path) -> Any:  # noqa: ANN401  # JSON
    for step in path:
        try:
            content = content[step]
        except (KeyError, IndexError, TypeError):
            return None
    return content
