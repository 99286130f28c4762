"""A Plan as the comment of a pull request: its counts, what is blocked and what restarts, then
each node with all of its changes. No age is in it: the same plan is the same bytes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sized

from reconciler.api.quantity import show_bytes
from reconciler.capacity.ledger import MemoryImpact
from reconciler.core.observation import Location, TargetState, starts_again
from reconciler.core.plan import Action, Blocked, Change, Plan, Restart
from reconciler.report.fields import pool_label, shown_change
from reconciler.report.legend import BY_ACTION
from reconciler.report.links import NO_LINKS, Links
from reconciler.report.markdown import Passage, Section, code, cut, html_code, link, prose
from reconciler.report.plan_objects import by_service, object_details, object_name
from reconciler.report.plan_parts import (
    TargetPlan,
    blocked_name,
    blocked_text,
    by_target,
    change_details,
    change_name,
    downloads_text,
    impact_text,
    is_said_of_target,
    summary_text,
    totals,
)
from reconciler.report.terminal import counted, short_revision
from reconciler.timestamps import timestamp

TITLE = "### Fleet plan"
_ENDS = (Action.DELETE, Action.STOP)


def plan_markdown(plan: Plan, links: Links = NO_LINKS) -> str:
    """At most as long as a comment may be, ending in a newline."""
    targets = list(by_target(plan))
    busy = [t for t in targets if t.changes or t.stopped or not t.state.reachable]
    own = [(t.state, c) for t in busy for c in t.changes if c.object is None]
    own = [(state, change) for state, change in own if not change.is_shown_only]
    restarts = [
        (s, c) for s, c in own if c.impact.restart is not Restart.NONE or c.action is Action.MOVE
    ]
    ends = [(state, change) for state, change in own if change.action in _ENDS]
    sections = (
        Section("#### Blocked\n\n", [_blocked(b, links) for b in plan.blocked], "reason"),
        Section("#### What restarts\n\n", [_headline(*p, links) for p in restarts], "service"),
        Section("#### What stops\n\n", [_headline(*p, links) for p in ends], "service"),
        Section(
            "#### Nodes and clusters\n\n",
            [_target(t, links, is_open=len(busy) == 1) for t in busy],
            "node",
        ),
    )
    return cut(_head(plan, links), sections, _calm(targets, busy))


def _head(plan: Plan, links: Links) -> str:
    download = downloads_text(plan.changes)
    commit = plan.revision if re.fullmatch("[0-9a-f]{40,64}", plan.revision) else None
    parts = [
        f"**{summary_text(plan)}.**",
        f"Download {download}." if download else "",
        f"Planned for {link(code(short_revision(plan.revision)), links.to_commit(commit))}.",
    ]
    return f"{TITLE}\n\n{' '.join(part for part in parts if part)}\n\n"


def _calm(targets: Sized, busy: Sized) -> str:
    """How many have nothing to do, beside others."""
    calm = len(targets) - len(busy)
    return f"Nothing to do on {counted('other', calm)}.\n" if busy and calm else ""


def _blocked(item: Blocked, links: Links) -> Passage:
    head = f"- {code(blocked_name(item))}{_on(item.target)}"
    text = f"{head}: {prose(blocked_text(item))}{_cause(item.source, links)}\n"
    return Passage(text, f"{head}: {prose(item.reason)}\n")


def _headline(state: TargetState, change: Change, links: Links) -> Passage:
    head = f"- {code(change.ref.label)}{_on(change.target)}"
    what = impact_text(change, state) or "; ".join(change_details(change, state, _at))
    return Passage(f"{head}: {prose(what)}{_cause(change.source, links)}\n", f"{head}\n")


def _on(target: str | None) -> str:
    return f" on {_named(target)}" if target else ""


def _named(target: str) -> str:
    kind, _, name = target.partition("/")
    return f"{kind} {code(name)}"


def _cause(source: Location | None, links: Links) -> str:
    """The line that it comes from, and its commit."""
    if source is None:
        return ""
    line = link(
        code(f"{source.file}:{source.line}"), links.to_line(source.file, source.line, source.commit)
    )
    if not source.commit:
        return f" ({line}, uncommitted)"
    return f" ({line}, {link(code(source.commit[:7]), links.to_commit(source.commit))})"


def _at(seconds: float) -> str:
    return f"at {timestamp(seconds)}"


def _target(part: TargetPlan, links: Links, *, is_open: bool) -> Passage:
    state = part.state
    kind, _, name = state.target.partition("/")
    download = downloads_text(part.changes)
    parts = [totals(part.counts), f"download {download}" if download else "", _seen(state)]
    counts = "; ".join(text for text in parts if text)
    lines = "".join(_lines(part, links))
    opened = " open" if is_open else ""
    head = f"<details{opened}><summary>{kind} {html_code(name)}: {counts}</summary>\n\n"
    return Passage(f"{head}{lines}\n</details>\n\n", f"- {_named(state.target)}: {counts}\n")


def _seen(state: TargetState) -> str:
    if state.reachable:
        return ""
    return "never seen" if state.seen_at is None else f"last seen {_at(state.seen_at)}"


def _lines(part: TargetPlan, links: Links) -> Iterator[str]:
    state = part.state
    if state.message:
        yield f"{prose(state.message)}\n\n"
    yield from _memory(part)
    for own, objects in by_service(part.changes):
        for change in own:
            yield from _change(change, state, links)
        for change in objects:
            yield _object(change, links)
    for ref in part.stopped:
        again = prose(f"stopped by a person: {starts_again(ref, state)}")
        yield f"- {code(BY_ACTION['stopped'].sign)} {code(ref.label)}: {again}\n"


def _memory(part: TargetPlan) -> Iterator[str]:
    """Each pool of a node before and after. In a cluster each service has a node's to itself."""
    if not part.state.target.startswith("node/"):
        return
    pools: dict[str, list[MemoryImpact]] = {}
    for change in sorted(part.changes, key=lambda change: change.impact.order):
        for impact in change.impact.memory:
            pools.setdefault(impact.pool, []).append(impact)
    if not pools:
        return
    names = {pool.name for pool in part.state.pools} | pools.keys()
    yield "| pool | before | at most | after | budget |\n| --- | ---: | ---: | ---: | ---: |\n"
    for name, impacts in sorted(pools.items()):
        peaks = [impact.peak_bytes for impact in impacts]
        known = [peak for peak in peaks if peak is not None]
        peak = max(known) if len(known) == len(peaks) else None
        cells = (impacts[0].before_bytes, peak, impacts[-1].after_bytes, impacts[-1].budget_bytes)
        shown = " | ".join("?" if size is None else show_bytes(size) for size in cells)
        yield f"| {prose(pool_label(name, names))} | {shown} |\n"
    yield "\n"


def _change(change: Change, state: TargetState, links: Links) -> Iterator[str]:
    yield f"{_marked(change, change_name(change))}{_cause(change.source, links)}"
    if is_said_of_target(change, state):
        yield "\n"
        return
    details = "; ".join(change_details(change, state, _at))
    yield f": {prose(details)}\n" if details else "\n"
    for field in change.fields:
        elsewhere = field.source if field.source != change.source else None
        values = prose(shown_change(field))
        yield f"  - {code(field.path)} {values}{_cause(elsewhere, links)}\n"


def _object(change: Change, links: Links) -> str:
    cause = "" if change.action is Action.DRIFT else _cause(change.source, links)
    details = "; ".join(object_details(change, _at))
    tail = f": {prose(details)}" if details else ""
    return f"{_marked(change, object_name(change))}{cause}{tail}\n"


def _marked(change: Change, name: str) -> str:
    return f"- {code(BY_ACTION[change.action].sign)} {code(name)}"
