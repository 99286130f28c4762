"""What a plan is made of, for whoever shows it: each target with its changes and counts, and what
is said of a change. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from reconciler.api.meta import ObjectRef
from reconciler.api.quantity import format_duration, show_bytes
from reconciler.api.reasons import REASONS
from reconciler.capacity.ledger import MemoryImpact
from reconciler.core.observation import TargetState
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
from reconciler.report.fields import pool_label
from reconciler.report.legend import LEGEND
from reconciler.report.terminal import natural, printable

T = TypeVar("T")
When = Callable[[float], str]  # a time, in seconds since the epoch, in words
_RESTARTS = {
    (Action.REPLACE, Restart.RESTART): "restart",
    (Action.DRIFT, Restart.RESTART): "restart",
    (Action.UPDATE, Restart.NONE): "no restart",
    (Action.UPDATE, Restart.HOT): "reloads the changed models",
    (Action.UPDATE, Restart.ROLL): "roll",
}
_USUAL_DRAIN_S = 60.0  # the default of rollout.drainTimeout
_PLAINLY = {Action.CREATE: "starts"}
_TAKES_MEMORY = (Action.CREATE, Action.REPLACE, Action.DRIFT, Action.DELETE, Action.STOP)


@dataclass(frozen=True, slots=True)
class TargetPlan:
    """One target with what happens there; its changes by what they come from."""

    state: TargetState
    changes: tuple[Change, ...]
    counts: Mapping[str, int]
    stopped: tuple[ObjectRef, ...]


def by_target(plan: Plan) -> Iterator[TargetPlan]:
    """Every target, those that did not answer first."""
    changes_of = _grouped((c.target, c) for c in sorted(plan.changes, key=_by_cause))
    blocked = _grouped((item.target, item.ref) for item in plan.blocked)
    stopped = _grouped((state.target, ref) for state, ref in plan.stopped)
    for target, state in sorted(plan.targets.items(), key=_by_trouble):
        changes = changes_of.get(target, [])
        counts = Counter(map(str, standing(changes).values()))
        counts["blocked"] = len({*blocked.get(target, ())})
        counts["unchanged"] = plan.unchanged.get(target, 0)
        yield TargetPlan(state, tuple(changes), counts, tuple(stopped.get(target, ())))


def totals(counted: Mapping[str, int]) -> str:
    """Zeros say nothing."""
    labels = [*((m.action, m.counted) for m in LEGEND), ("unchanged", "unchanged")]
    parts = [f"{n} {word}" for action, word in labels if (n := counted.get(action, 0))]
    return ", ".join(parts) or "nothing to do"


def change_name(change: Change) -> str:
    """On a node only services change, so that what starts them says more than the kind."""
    if change.target.startswith("cluster/"):
        return f"{change.ref.kind} {change.ref.label}"
    return f"{change.ref.label} ({change.desired.runtime})" if change.desired else change.ref.label


def impact_text(change: Change, state: TargetState) -> str:
    if change.is_shown_only:
        return ""
    impact = change.impact
    parts = [_RESTARTS.get((change.action, impact.restart), ""), *_order_text(impact)]
    if change.action in _TAKES_MEMORY or impact.restart in (Restart.HOT, Restart.ROLL):
        pools = {pool.name for pool in state.pools} | {memory.pool for memory in impact.memory}
        parts += [_memory_text(memory, pools) for memory in impact.memory]
        if change.desired and not impact.memory and change.action is not Action.STOP:
            parts.append(_memory_unknown(change.desired))
    parts += [_download_text(impact), _downtime_text(impact), _drain_text(change)]
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


def _drain_text(change: Change) -> str:
    """Only where somebody asked for a long wait: every stop waits for a moment."""
    longest_s = change.impact.drain_seconds or 0.0
    if longest_s <= _USUAL_DRAIN_S:
        return ""
    waits = f"until no request is in flight, for {format_duration(round(longest_s))} at most"
    if change.target.startswith("cluster/"):
        return f"each pod that goes gets no new requests, and waits {waits}"
    return f"waits {waits}"


def blocked_name(item: Blocked) -> str:
    service = item.ref.kind == "InferenceService"
    return item.ref.label if service else f"{item.ref.kind} {item.ref.label}"


def blocked_text(item: Blocked) -> str:
    holds = [ref.label for ref in item.holds if ref != item.ref]
    tail = f"; holds {', '.join(holds)}" if holds else ""
    return f"{item.reason}: {printable(item.message)}{tail}"


def change_details(change: Change, state: TargetState, when: When) -> Iterator[str]:
    """What is said of a change whose fields are not the whole story, or that has none."""
    impact = impact_text(change, state)
    if change.fields:
        yield from (impact,) if impact else ()
        return
    message = printable(change.message)
    since = "" if change.since is None else f"first seen {when(change.since)}"
    plainly = _PLAINLY.get(change.action) or ("" if message else REASONS[change.reason])
    yield from (part for part in (plainly, impact, message, since) if part)


def is_said_of_target(change: Change, state: TargetState) -> bool:
    """Whether the target's own line says what the change would."""
    return change.action is Action.UNKNOWN and change.message == state.message


def summary_text(plan: Plan) -> str:
    """The counts of the whole plan."""
    summary = plan.summary
    if not plan.changes and not plan.blocked:
        unchanged = summary["unchanged"]
        return f"nothing to do{f', {unchanged} unchanged' if unchanged else ''}"
    return totals(summary)


def downloads_text(changes: Iterable[Change]) -> str:
    """What all of them fetch together; empty where nothing is known to be."""
    sizes = [change.impact.download_bytes for change in changes]
    known = sum(size for size in sizes if size)
    return f"{show_bytes(known)}{' or more' if None in sizes else ''}" if known else ""


def _by_trouble(item: tuple[str, TargetState]) -> tuple[object, ...]:
    target, state = item
    return state.reachable, natural(target)


def _by_cause(change: Change) -> tuple[object, ...]:
    where, name = change.source, natural(change.ref.label)
    if where is None:
        return (change.reason, (), 0, name)
    return (where.commit or "", natural(where.file), where.line, name)


def _grouped(pairs: Iterable[tuple[str | None, T]]) -> dict[str | None, list[T]]:
    """By target: a fleet may have thousands, and a plan a hundred thousand changes."""
    groups: dict[str | None, list[T]] = {}
    for target, each in pairs:
        groups.setdefault(target, []).append(each)
    return groups
