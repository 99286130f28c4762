"""A Plan as a person reads it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeVar

from reconciler.api.quantity import format_duration, show_bytes
from reconciler.api.reasons import REASONS
from reconciler.capacity.ledger import MemoryImpact
from reconciler.core.observation import TargetState, starts_again
from reconciler.core.plan import (
    Action,
    Blocked,
    Change,
    DiskImpact,
    Impact,
    Plan,
    Restart,
    standing,
)
from reconciler.fleet.workload import Workload
from reconciler.report.fields import pool_label, shown_change
from reconciler.report.legend import BY_ACTION, LEGEND
from reconciler.report.plan_objects import by_service, object_lines, where
from reconciler.report.spans import age
from reconciler.report.terminal import PLAIN, Style, Tone, hanging, is_long, natural, printable

T = TypeVar("T")
_RESTARTS = {
    (Action.REPLACE, Restart.RESTART): "restart",
    (Action.DRIFT, Restart.RESTART): "restart",
    (Action.UPDATE, Restart.NONE): "no restart",
    (Action.UPDATE, Restart.HOT): "reloads the changed models",
    (Action.UPDATE, Restart.ROLL): "roll",
}
_PLAINLY = {Action.CREATE: "starts"}
_TAKES_MEMORY = (Action.CREATE, Action.REPLACE, Action.DRIFT, Action.DELETE, Action.STOP)
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
    by_target = _grouped((c.target, c) for c in sorted(plan.changes, key=_by_cause))
    blocked = _grouped((item.target, item.ref) for item in plan.blocked)
    stopped = _grouped((state.target, ref) for state, ref in plan.stopped)
    if plan.blocked:
        yield style(Tone.BAD, f"blocked {plan.summary['blocked']}")
        for item in plan.blocked:
            yield from _blocked_lines(item, style, is_alone=len(plan.targets) < 2)
    for target, state in sorted(plan.targets.items(), key=_by_trouble):
        changes = by_target.get(target, [])
        counts = Counter(map(str, standing(changes).values()))
        counts["blocked"] = len({*blocked.get(target, ())})
        counts["unchanged"] = plan.unchanged.get(target, 0)
        yield _target_line(state, _totals(counts), now, style)
        if state.message:
            yield f"        {printable(state.message)}"
        for own, objects in by_service(changes):
            for change in own:
                yield from _change_lines(change, state, now, style)
            for change in objects:
                yield from object_lines(change, _mark(change.action, style), now)
        for ref in stopped.get(target, ()):
            yield f"  {_mark('stopped', style)} {ref.label}"
            yield f"        stopped by a person: {starts_again(ref, state)}"


def _reminders(plan: Plan, style: Style) -> Iterator[str]:
    """The end of a long plan is what a terminal shows of it: the names of what is wrong."""
    blocked = list(dict.fromkeys(_blocked_name(item) for item in plan.blocked))
    silent = [state.target.replace("/", " ", 1) for state in plan.unreachable]
    for what, names in (("blocked", blocked), ("did not answer", silent)):
        if names:
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            line = f"{what}, see the top: {', '.join(names[:_NAMED])}{more}"
            yield style(Tone.BAD, line)


def _by_trouble(item: tuple[str, TargetState]) -> tuple[object, ...]:
    target, state = item
    return state.reachable, natural(target)


def _by_cause(change: Change) -> tuple[object, ...]:
    where, name = change.source, natural(change.ref.label)
    if where is None:
        return (change.reason, (), 0, name)
    return (where.commit or "", natural(where.file), where.line, name)


def _mark(action: str, style: Style) -> str:
    mark = BY_ACTION[action]
    return style(mark.tone, f"{mark.sign:<3}")


def _grouped(pairs: Iterable[tuple[str | None, T]]) -> dict[str | None, list[T]]:
    """By target: a fleet may have thousands, and a plan a hundred thousand changes."""
    groups: dict[str | None, list[T]] = {}
    for target, each in pairs:
        groups.setdefault(target, []).append(each)
    return groups


def _totals(counted: Mapping[str, int]) -> str:
    """Zeros say nothing."""
    labels = [*((m.action, m.counted) for m in LEGEND), ("unchanged", "unchanged")]
    parts = [f"{n} {word}" for action, word in labels if (n := counted.get(action, 0))]
    return ", ".join(parts) or "nothing to do"


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
    head = f"  {_mark(change.action, style)} {_name(change):<40}"
    yield f"{head} {where(change.source)}".rstrip()
    impact = _impact_text(change, state)
    if change.action is Action.UNKNOWN and change.message == state.message:
        return  # said once, for the whole target
    if not change.fields:
        message = printable(change.message)
        since = "" if change.since is None else f"first seen {age(now - change.since)}"
        plainly = _PLAINLY.get(change.action) or ("" if message else REASONS[change.reason])
        yield "        " + "; ".join(part for part in (plainly, impact, message, since) if part)
        return
    for field in change.fields:
        place = where(field.source) if field.source not in (None, change.source) else ""
        yield f"        {printable(field.path):<18} {shown_change(field):<21} {place}".rstrip()
    if impact:
        yield f"        {impact}"


def _name(change: Change) -> str:
    """On a node only services change, so that what starts them says more than the kind."""
    if change.target.startswith("cluster/"):
        return f"{change.ref.kind} {change.ref.label}"
    return f"{change.ref.label} ({change.desired.runtime})" if change.desired else change.ref.label


def _impact_text(change: Change, state: TargetState) -> str:
    if change.is_shown_only:
        return ""
    impact = change.impact
    parts = [_RESTARTS.get((change.action, impact.restart), ""), *_order_text(impact)]
    if change.action in _TAKES_MEMORY or impact.restart in (Restart.HOT, Restart.ROLL):
        pools = {pool.name for pool in state.pools} | {memory.pool for memory in impact.memory}
        parts += [_memory_text(memory, pools) for memory in impact.memory]
        if change.desired and not impact.memory and change.action is not Action.STOP:
            parts.append(_memory_unknown(change.desired))
    parts += [_download_text(impact), _downtime_text(impact)]
    return "; ".join(part for part in parts if part)


def _order_text(impact: Impact) -> Iterator[str]:
    """Who has to leave first, where the order alone does not say it."""
    before = ", ".join(ref.label for ref in impact.after)
    if impact.stops_for is not None:
        yield f"stops first, so that {impact.stops_for.label} can have its port, and starts last"
    elif before:
        yield f"once {before} has left that port"
    if impact.waits:
        yield "for which a model has to come first"


def _memory_unknown(want: Workload) -> str:
    if want.memory is None:
        return "memory known once the model is here"
    return f"takes {show_bytes(want.memory.total_bytes)} of memory that is not stated"


def _memory_text(memory: MemoryImpact, pools: Collection[str]) -> str:
    before, after = memory.before_bytes or 0, memory.after_bytes or 0
    budget = memory.budget_bytes or 0
    unit, size = ("GiB", 2**30) if max(before, after, budget) >= 2**30 else ("MiB", 2**20)
    was = "?" if memory.before_bytes is None else f"{before / size:.1f}"
    is_ = "?" if memory.after_bytes is None else f"{after / size:.1f}"
    return f"{pool_label(memory.pool, pools)} {was} -> {is_} of {budget / size:.1f} {unit}"


def _download_text(impact: Impact) -> str:
    if impact.download_bytes == 0:
        return ""
    size, disk = impact.download_bytes, impact.disk
    text = "download, size not known yet" if size is None else f"download {show_bytes(size)}"
    return text if disk is None else f"{text}; {_disk_text(disk)}"


def _disk_text(disk: DiskImpact) -> str:
    unit, size = ("GiB", 2**30) if disk.before_bytes >= 2**30 else ("MiB", 2**20)
    left = "?" if disk.after_bytes is None else f"{disk.after_bytes / size:.1f}"
    return f"disk {disk.before_bytes / size:.1f} -> {left} {unit} left"


def _downtime_text(impact: Impact) -> str:
    if impact.restart is Restart.ROLL and impact.downtime_seconds is None:
        return "down until its new pods are ready"
    if impact.restart != Restart.RESTART:
        return ""
    if impact.downtime_seconds is None:
        return "downtime not measured yet"
    seconds = impact.downtime_seconds
    return f"down ~{seconds:.1f} s" if seconds < 10 else f"down ~{format_duration(round(seconds))}"


def _blocked_lines(item: Blocked, style: Style, *, is_alone: bool) -> Iterator[str]:
    """`is_alone`: there is one target, so that none needs to be named."""
    name = _blocked_name(item)
    if item.target and not is_alone:
        name += f" on {item.target.removeprefix('node/').replace('/', ' ')}"
    yield f"  {_mark('blocked', style)} {name:<40} {where(item.source)}".rstrip()
    holds = [ref.label for ref in item.holds if ref != item.ref]
    tail = f"; holds {', '.join(holds)}" if holds else ""
    yield f"        {item.reason}: {printable(item.message)}{tail}"


def _blocked_name(item: Blocked) -> str:
    service = item.ref.kind == "InferenceService"
    return item.ref.label if service else f"{item.ref.kind} {item.ref.label}"


def _summary_line(plan: Plan) -> str:
    summary = plan.summary
    if not plan.changes and not plan.blocked:
        unchanged = summary["unchanged"]
        return f"Plan: nothing to do{f', {unchanged} unchanged' if unchanged else ''}."
    sizes = [c.impact.download_bytes for c in plan.changes]
    known = sum(size for size in sizes if size)
    download = (
        f" Download {show_bytes(known)}{' or more' if None in sizes else ''}." if known else ""
    )
    return f"Plan: {_totals(summary)}.{download}"
