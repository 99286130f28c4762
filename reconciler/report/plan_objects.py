"""The objects of a cluster in a plan for people: under their service, or a line each. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from reconciler.api.meta import ObjectRef
from reconciler.plan import SENSITIVE, Action, Change
from reconciler.reasons import REASONS
from reconciler.report.fields import shown_change, shown_value
from reconciler.report.spans import age
from reconciler.report.terminal import printable


def by_service(changes: Iterable[Change]) -> Iterator[tuple[list[Change], list[Change]]]:
    """For each service the lines of its own, and its objects that need a line beside them: what
    somebody else changed always does, the others where they are all there is."""
    groups: dict[ObjectRef, list[Change]] = {}
    for change in changes:
        groups.setdefault(change.ref, []).append(change)
    for group in groups.values():
        own = [change for change in group if change.object is None]
        objects = [change for change in group if change.object is not None]
        if not own:
            yield own, _whole(objects)
        else:
            yield own, [_folded(change) for change in objects if _is_by_others(change)]


def _whole(objects: list[Change]) -> list[Change]:
    """Objects that come or go together are one line: their service's document."""
    document = [c for c in objects if c.object is not None and c.object.kind == c.ref.kind]
    is_one = len({(c.action, c.by) for c in objects}) == 1
    together = is_one and objects[0].action in (Action.CREATE, Action.DELETE)
    return document if document and together else objects


def _is_by_others(change: Change) -> bool:
    return change.action is Action.DRIFT or bool(change.by)


def _folded(change: Change) -> Change:
    """Beside its service's line, which tells what was declared anew: what others did is left."""
    return change if change.action is Action.DRIFT else replace(change, fields=())


def object_lines(change: Change, mark: str, now: float) -> Iterator[str]:
    """One object with what is different about it; the mark is the caller's, three places wide."""
    assert change.object is not None
    named = change.object
    name = f"{named.namespace}/{named.name}" if named.namespace else named.name
    said = [printable(change.message)] if change.message else []
    parts = [*(_field(change, i, now) for i in range(len(change.fields))), *said]
    first, *rest = parts or [REASONS[change.reason]]
    yield f"  {mark} {f'{named.kind} {name}':<40} {first}"
    for part in rest:
        yield f"      {'':<40} {part}"


def _field(change: Change, index: int, now: float) -> str:
    field = change.fields[index]
    if change.action is not Action.DRIFT or SENSITIVE in (field.before, field.after):
        return f"{field.path} {shown_change(field)}"
    declared, live = (shown_value(field.path, v) for v in (field.after, field.before))
    who = f" by {printable(change.by)}" if change.by else ""
    since = f" {age(now - change.since)}" if change.since is not None else ""
    back = "" if change.is_shown_only else f": back to {declared}"
    return f"{field.path} {declared} -> {live}{who}{since}{back}"
