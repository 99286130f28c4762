"""A Plan as a person reads it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from reconciler.api.quantity import format_duration, show_bytes
from reconciler.capacity.ledger import MemoryImpact
from reconciler.plan import (
    Action,
    Blocked,
    Change,
    Impact,
    Plan,
    Restart,
    TargetState,
    standing,
)
from reconciler.reasons import REASONS
from reconciler.report.fields import shown_change
from reconciler.report.plan_objects import by_service, object_lines, where
from reconciler.report.spans import age
from reconciler.report.terminal import PLAIN, Style, Tone, printable

MARKS = {
    Action.CREATE: "+",
    Action.UPDATE: "~",
    Action.REPLACE: "-/+",
    Action.MOVE: ">",
    Action.DELETE: "-",
    Action.DRIFT: "!",
    Action.UNKNOWN: "?",
    Action.DEFERRED: "=",
}
_TONES = {
    Action.CREATE: Tone.GOOD,
    Action.DELETE: Tone.BAD,
    Action.UNKNOWN: Tone.QUIET,
    Action.DEFERRED: Tone.QUIET,
}
_WORDS = {
    Action.CREATE: "to create",
    Action.UPDATE: "to update",
    Action.REPLACE: "to replace",
    Action.MOVE: "to move",
    Action.DELETE: "to delete",
    Action.DRIFT: "drifted",
    Action.UNKNOWN: "unknown",
    Action.DEFERRED: "deferred",
}
_RESTARTS = {
    (Action.REPLACE, Restart.RESTART): "restart",
    (Action.DRIFT, Restart.RESTART): "restart",
    (Action.UPDATE, Restart.NONE): "no restart",
    (Action.UPDATE, Restart.HOT): "reloads the changed models",
    (Action.UPDATE, Restart.ROLL): "roll",
}
_PLAINLY = {Action.CREATE: "starts"}
_OLD_S = 10.0
_ALWAYS_COUNTED = (Action.CREATE, Action.UPDATE, Action.REPLACE, Action.MOVE, Action.DELETE)


def plan_text(plan: Plan, now: float, style: Style = PLAIN) -> str:
    """The whole plan, ending in a newline. `now` (epoch seconds) only ages what was seen."""
    return "\n".join(_lines(plan, now, style)) + "\n"


def _lines(plan: Plan, now: float, style: Style) -> Iterator[str]:
    by_target: dict[str, list[Change]] = {target: [] for target in plan.targets}
    for change in sorted(plan.changes, key=_by_cause):
        by_target.setdefault(change.target, []).append(change)
    for target, state in sorted(plan.targets.items()):
        changes = by_target[target]
        yield _target_line(state, changes, plan.unchanged.get(target, 0), now, style)
        if state.message:
            yield f"        {printable(state.message)}"
        for own, objects in by_service(changes):
            for change in own:
                yield from _change_lines(change, state, now, style)
            for change in objects:
                mark = style(_TONES.get(change.action, Tone.CHANGE), f"{MARKS[change.action]:<3}")
                yield from object_lines(change, mark, now)
        for ref in sorted(state.stopped.keys() - {change.ref for change in changes}):
            yield style(Tone.QUIET, f"  .   {ref.label:<40}").rstrip()
            yield f"        {REASONS['StoppedByHand']}"
    if plan.blocked:
        yield style(Tone.BAD, f"blocked {len(plan.blocked)}")
        for item in plan.blocked:
            yield from _blocked_lines(item, style)
    yield _summary_line(plan)


def _by_cause(change: Change) -> tuple[str, str, int, str]:
    where = change.source
    if where is None:
        return (change.reason, "", 0, change.ref.label)
    return (where.commit or "", where.file, where.line, change.ref.label)


def _target_line(
    state: TargetState, changes: list[Change], unchanged: int, now: float, style: Style
) -> str:
    kind, _, name = state.target.partition("/")
    actions = Counter(standing(changes).values())
    counts = [f"{n} {_WORDS[action]}" for action in Action if (n := actions[action])]
    counts += [f"{unchanged} unchanged"] if unchanged or not counts else []
    if not state.reachable:
        seen = "never seen" if state.seen_at is None else f"last seen {age(now - state.seen_at)}"
        return f"{_padded(style, f'{kind} {name} ({seen})')} {', '.join(counts)}"
    # What this machine sees of itself is never old; what an agent said may be.
    old = state.seen_at is not None and now - state.seen_at >= _OLD_S
    seen = f" (seen {age(now - state.seen_at)})" if old and state.seen_at is not None else ""
    return f"{_padded(style, f'{kind} {name}{seen}')} {', '.join(counts)}"


def _padded(style: Style, text: str) -> str:
    """Coloured after it was padded: escape codes have no width."""
    return style(Tone.STRONG, text) + " " * (32 - len(text))


def _change_lines(change: Change, state: TargetState, now: float, style: Style) -> Iterator[str]:
    mark = style(_TONES.get(change.action, Tone.CHANGE), f"{MARKS[change.action]:<3}")
    head = f"  {mark} {_name(change):<40}"
    yield f"{head} {where(change.source)}".rstrip()
    impact = _impact_text(change)
    if change.action is Action.UNKNOWN and change.message == state.message:
        return  # said once, for the whole target
    if not change.fields:
        said = printable(change.message)
        since = "" if change.since is None else f"first seen {age(now - change.since)}"
        plainly = _PLAINLY.get(change.action) or ("" if said else REASONS[change.reason])
        yield "        " + "; ".join(part for part in (plainly, impact, said, since) if part)
    for i, field in enumerate(change.fields):
        line = f"        {field.path:<18} {shown_change(field)}"
        yield f"{line:<48} {impact}".rstrip() if i == 0 else line


def _name(change: Change) -> str:
    """On a node only services change, so that what starts them says more than the kind."""
    if change.target.startswith("cluster/"):
        return f"{change.ref.kind} {change.ref.label}"
    return f"{change.ref.label} ({change.desired.runtime})" if change.desired else change.ref.label


def _impact_text(change: Change) -> str:
    if change.is_shown_only:
        return ""
    impact = change.impact
    parts = [_RESTARTS.get((change.action, impact.restart), "")]
    weighed = (Action.CREATE, Action.REPLACE, Action.DRIFT, Action.DELETE)
    if change.action in weighed or impact.restart in (Restart.HOT, Restart.ROLL):
        parts += [_memory_text(m) for m in impact.memory]
        if change.desired and not impact.memory and change.action != Action.DELETE:
            parts.append("memory known once the model is here")
    parts += [_download_text(impact), _downtime_text(impact)]
    return "; ".join(part for part in parts if part)


def _memory_text(memory: MemoryImpact) -> str:
    before, after = memory.before_bytes or 0, memory.after_bytes or 0
    budget = memory.budget_bytes or 0
    unit, size = ("GiB", 2**30) if max(before, after, budget) >= 2**30 else ("MiB", 2**20)
    was = "?" if memory.before_bytes is None else f"{before / size:.1f}"
    return f"{memory.pool} {was} -> {after / size:.1f} of {budget / size:.1f} {unit}"


def _download_text(impact: Impact) -> str:
    if impact.download_bytes is None:
        return "download, size not known yet"
    return f"download {show_bytes(impact.download_bytes)}" if impact.download_bytes else ""


def _downtime_text(impact: Impact) -> str:
    if impact.restart is Restart.ROLL and impact.downtime_seconds is None:
        return "down until its new pods are ready"
    if impact.restart != Restart.RESTART:
        return ""
    if impact.downtime_seconds is None:
        return "downtime not measured yet"
    seconds = impact.downtime_seconds
    return f"down ~{seconds:.1f} s" if seconds < 10 else f"down ~{format_duration(round(seconds))}"


def _blocked_lines(item: Blocked, style: Style) -> Iterator[str]:
    service = item.ref.kind == "InferenceService"
    name = item.ref.label if service else f"{item.ref.kind} {item.ref.label}"
    yield f"  {style(Tone.BAD, 'x  ')} {name:<40} {where(item.source)}".rstrip()
    holds = [ref.label for ref in item.holds if ref != item.ref]
    tail = f"; holds {', '.join(holds)}" if holds else ""
    yield f"        {item.reason}: {printable(item.message)}{tail}"


def _summary_line(plan: Plan) -> str:
    summary = plan.summary
    if not plan.changes and not plan.blocked:
        return f"Plan: nothing to do, {summary['unchanged']} unchanged."
    counts = [f"{summary[action]} {_WORDS[action]}" for action in _ALWAYS_COUNTED]
    counts += [
        f"{summary[action]} {word}"
        for action, word in (("drift", "drift"), ("unknown", "unknown"), ("deferred", "deferred"))
        if summary[action]
    ]
    counts += [f"{summary['blocked']} blocked"] if summary["blocked"] else []
    counts += [f"{summary['unchanged']} unchanged"]
    sizes = [c.impact.download_bytes for c in plan.changes]
    known = sum(size for size in sizes if size)
    download = (
        f" Download {show_bytes(known)}{' or more' if None in sizes else ''}." if known else ""
    )
    return f"Plan: {', '.join(counts)}.{download}"
