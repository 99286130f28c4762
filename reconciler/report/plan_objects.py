"""The objects of a cluster in a plan for people: under their service, or a line each. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from reconciler.api.meta import ObjectRef
from reconciler.api.reasons import REASONS
from reconciler.core.observation import Location
from reconciler.core.plan import SENSITIVE, Action, Change
from reconciler.report.fields import shown_change, shown_value
from reconciler.report.plan_parts import When
from reconciler.report.terminal import printable


def by_service(changes: Iterable[Change]) -> Iterator[tuple[list[Change], list[Change]]]:
    """For each service the lines of its own, and its objects that need a line beside them: what
    someone else changed or made does, the others where they are all there is. What comes or goes
    whole is shown by its document, with the kinds of the rest as its message."""
    groups: dict[ObjectRef, list[Change]] = {}
    for change in changes:
        groups.setdefault(change.ref, []).append(change)
    for group in groups.values():
        own = [change for change in group if change.object is None]
        objects = [change for change in group if change.object is not None]
        if not own:
            yield own, _whole(objects)
        else:
            shown = (change for change in objects if _is_by_others(change) or _is_of_pods(change))
            yield own, [_folded(change) for change in shown]


def _whole(objects: list[Change]) -> list[Change]:
    """Objects that come or go together are one line: their service's document."""
    document = [c for c in objects if c.object is not None and c.object.kind == c.ref.kind]
    is_one = len({(c.action, c.by) for c in objects}) == 1
    if not document or not is_one or objects[0].action not in (Action.CREATE, Action.DELETE):
        return objects
    kinds = {c.object.kind for c in objects if c.object is not None} - {document[0].ref.kind}
    message = f"with its {', '.join(sorted(kinds))}" if kinds else ""
    return [replace(document[0], message=message)]


def _is_by_others(change: Change) -> bool:
    return change.action is Action.DRIFT or bool(change.by)


def _is_of_pods(change: Change) -> bool:
    """What is said of pods that another controller made: that they stay, and what waits."""
    is_said = change.reason == "Adopted" or change.action is Action.DEFERRED
    return is_said and change.object is not None and change.object.kind == "Deployment"


def _folded(change: Change) -> Change:
    """Beside its service's line, which says what changed in the fleet: what others did is left."""
    return change if change.action is Action.DRIFT else replace(change, fields=())


def object_lines(change: Change, mark: str, when: When) -> Iterator[str]:
    """One object with what is different about it; the mark is the caller's, three places wide."""
    cause = "" if change.action is Action.DRIFT else where(change.source)
    parts = [part for part in (cause, *object_details(change, when)) if part]
    first, *rest = parts or [""]
    yield f"  {mark} {object_name(change):<40} {first}".rstrip()
    for part in rest:
        yield f"      {'':<40} {part}"


def object_name(change: Change) -> str:
    assert change.object is not None
    named = change.object
    name = f"{named.namespace}/{named.name}" if named.namespace else named.name
    return f"{named.kind} {name}"


def object_details(change: Change, when: When) -> list[str]:
    """What is different about an object, and why it changes where nothing else says it."""
    fields = (_field(change, i, when) for i in range(len(change.fields)))
    parts = [part for part in (*fields, printable(change.message)) if part]
    has_cause = change.source is not None and change.action is not Action.DRIFT
    is_plain = not parts and (not has_cause or change.reason == "ObjectMissing")
    return [*parts, REASONS[change.reason]] if is_plain else parts


def where(source: Location | None) -> str:
    """The line that a change comes from, and its commit."""
    if source is None:
        return ""
    commit = source.commit[:7] if source.commit else "uncommitted"
    return f"{printable(source.file)}:{source.line}   {commit}"


def _field(change: Change, index: int, when: When) -> str:
    field = change.fields[index]
    path = printable(field.path)
    if change.action is not Action.DRIFT:
        return f"{path} {shown_change(field)}"
    declared, live = (shown_value(field.path, v) for v in (field.after, field.before))
    who = f" by {printable(change.by)}" if change.by else ""
    since = f" {when(change.since)}" if change.since is not None else ""
    if SENSITIVE in (field.before, field.after):
        back = "" if change.is_shown_only else ": taken back"
        return f"{path} {SENSITIVE}{who}{since}{back}"
    back = "" if change.is_shown_only else f": back to {declared}"
    return f"{path} {declared} -> {live}{who}{since}{back}"
