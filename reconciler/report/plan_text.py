"""A Plan as a person reads it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.core.observation import TargetState, starts_again
from reconciler.core.plan import Blocked, Change, Plan
from reconciler.report.fields import shown_change
from reconciler.report.legend import BY_ACTION
from reconciler.report.plan_objects import by_service, object_lines, where
from reconciler.report.plan_parts import (
    When,
    blocked_name,
    blocked_text,
    by_target,
    change_details,
    change_name,
    downloads_text,
    is_said_of_target,
    summary_text,
    totals,
)
from reconciler.report.spans import age
from reconciler.report.terminal import PLAIN, Style, Tone, hanging, is_long, printable

_OLD_S = 10.0
_NAMED = 5


def plan_text(plan: Plan, now: float, style: Style = PLAIN, width: int | None = None) -> str:
    """The whole plan, ending in a newline: what is wrong first, the totals last, and where it is
    long at both ends. `now` (epoch seconds) only ages what was seen; `width`: of the terminal, None
    where lines have no end."""
    lines, totals = list(_lines(plan, now, style)), _summary_line(plan)
    if is_long(lines):
        lines = [totals, *lines, *_reminders(plan, style)]
    return "".join(f"{part}\n" for line in (*lines, totals) for part in hanging(line, width))


def _lines(plan: Plan, now: float, style: Style) -> Iterator[str]:
    if plan.blocked:
        yield style(Tone.BAD, f"blocked {plan.summary['blocked']}")
        for item in plan.blocked:
            yield from _blocked_lines(item, style, is_alone=len(plan.targets) < 2)
    for part in by_target(plan):
        yield _target_line(part.state, totals(part.counts), now, style)
        if part.state.message:
            yield f"        {printable(part.state.message)}"
        for own, objects in by_service(part.changes):
            for change in own:
                yield from _change_lines(change, part.state, now, style)
            for change in objects:
                yield from object_lines(change, _mark(change.action, style), _ago(now))
        for ref in part.stopped:
            yield f"  {_mark('stopped', style)} {ref.label}"
            yield f"        stopped by a person: {starts_again(ref, part.state)}"


def _ago(now: float) -> When:
    return lambda then: age(now - then)


def _reminders(plan: Plan, style: Style) -> Iterator[str]:
    """The end of a long plan is what a terminal shows of it: the names of what is wrong."""
    blocked = list(dict.fromkeys(blocked_name(item) for item in plan.blocked))
    silent = [state.target.replace("/", " ", 1) for state in plan.unreachable]
    for what, names in (("blocked", blocked), ("did not answer", silent)):
        if names:
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            line = f"{what}, see the top: {', '.join(names[:_NAMED])}{more}"
            yield style(Tone.BAD, line)


def _mark(action: str, style: Style) -> str:
    mark = BY_ACTION[action]
    return style(mark.tone, f"{mark.sign:<3}")


def _target_line(state: TargetState, counts: str, now: float, style: Style) -> str:
    kind, _, name = state.target.partition("/")
    if not state.reachable:
        seen = "never seen" if state.seen_at is None else f"last seen {age(now - state.seen_at)}"
        return f"{_padded(style, f'{kind} {name} ({seen})')} {counts}"
    # What this machine sees of itself is never old; what an agent reported may be.
    old = state.seen_at is not None and now - state.seen_at >= _OLD_S
    seen = f" (seen {age(now - state.seen_at)})" if old and state.seen_at is not None else ""
    return f"{_padded(style, f'{kind} {name}{seen}')} {counts}"


def _padded(style: Style, text: str) -> str:
    """Coloured after it was padded: escape codes have no width."""
    return style(Tone.STRONG, text) + " " * (32 - len(text))


def _change_lines(change: Change, state: TargetState, now: float, style: Style) -> Iterator[str]:
    head = f"  {_mark(change.action, style)} {change_name(change):<40}"
    yield f"{head} {where(change.source)}".rstrip()
    if is_said_of_target(change, state):
        return
    details = "; ".join(change_details(change, state, _ago(now)))
    if not change.fields:
        yield f"        {details}"
        return
    for field in change.fields:
        place = where(field.source) if field.source not in (None, change.source) else ""
        yield f"        {printable(field.path):<18} {shown_change(field):<21} {place}".rstrip()
    if details:
        yield f"        {details}"


def _blocked_lines(item: Blocked, style: Style, *, is_alone: bool) -> Iterator[str]:
    """`is_alone`: there is one target, so that none needs to be named."""
    name = blocked_name(item)
    if item.target and not is_alone:
        name += f" on {item.target.removeprefix('node/').replace('/', ' ')}"
    yield f"  {_mark('blocked', style)} {name:<40} {where(item.source)}".rstrip()
    yield f"        {blocked_text(item)}"


def _summary_line(plan: Plan) -> str:
    download = downloads_text(plan.changes)
    return f"Plan: {summary_text(plan)}.{f' Download {download}.' if download else ''}"
