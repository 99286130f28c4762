"""What runs where and how it is, as a table for people. Pure.

Nodes one below the other, each with its services; what there is to say of a service is below it.
What needs attention comes first, and of the rest as much as there is room for.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from reconciler.api.quantity import show_bytes
from reconciler.capacity.pools import spelled
from reconciler.core.observation import DriftKind, Instance, TargetState, starts_again
from reconciler.report.node_status import Fact, node_downloads, node_facts, node_troubles
from reconciler.report.spans import age, span
from reconciler.report.speeds import speed_text
from reconciler.report.status import (
    MEANT,
    DeclaredService,
    Status,
    advertised,
    base_url,
    is_asleep,
    is_well,
    speaks,
    state_word,
)
from reconciler.report.terminal import PLAIN, Style, Tone, natural, printable

_HEADER = ("SERVICE", "STATE", "ENDPOINT", "PID", "SINCE")
_GAP = "  "
_STATE, _ENDPOINT = 1, 2
_GIVEN_UP = ("PID", "SINCE", "ENDPOINT")  # in this order, where a terminal is narrow
_COMING = ("Downloading", "Loading")
# What the process itself has more to say of.
_LOGGED = ("BadFlag", "Crashed", "Exited", "KilledBySignal", "ModelsFailed", "NotResponding")
_DRIFT_MARKS = {
    DriftKind.RESTART: "!",
    DriftKind.FOREIGN: "!",
    DriftKind.DEFERRED: "=",
    DriftKind.COSMETIC: "~",
}


@dataclass(frozen=True, slots=True)
class StatusStyle:
    """How to show it: `now` in seconds since the epoch, `width` None for no limit."""

    now: float
    width: int | None = None
    style: Style = PLAIN


@dataclass(frozen=True, slots=True)
class _Row:
    """One service on one node: its cells, and the lines below it. `is_well`: no one needs to
    look at it."""

    cells: tuple[str, ...]
    tone: Tone
    below: tuple[Fact, ...] = ()
    is_well: bool = False


@dataclass(frozen=True, slots=True)
class _Group:
    """One node, or what has none: its lines, the services that need a look, and those
    that are well."""

    head: list[str]
    unwell: list[_Row]
    well: list[_Row]
    troubled: bool


def status_text(status: Status, view: StatusStyle, *, well: int | None = None) -> str:
    """The whole table, ending in a newline. Of the services that are well it shows `well` at most
    (None: all) and counts the rest."""
    groups = _groups(status, view)
    room = len(status.refs) * len(groups) if well is None else well
    shown: list[list[_Row]] = []
    for group in groups:
        shown.append([*group.unwell, *group.well[:room]])
        room = max(0, room - len(group.well))
    columns = _columns([row for rows in shown for row in rows], view.width)
    header = [view.style(Tone.QUIET, _line(_HEADER, columns))]
    lines: list[str] = []
    for group, rows in zip(groups, shown, strict=True):
        lines += group.head
        if rows:
            lines, header = [*lines, *header], []
        lines += _table(rows, columns, view)
        if left := group.well[len(rows) - len(group.unwell) :]:
            lines.append(_GAP + view.style(Tone.QUIET, _left_out(left)))
        lines.append("")
    return "\n".join([*lines, _summary(status)]) + "\n"


def well_rows(status: Status, view: StatusStyle) -> int:
    """How many rows a table may leave out."""
    return sum(len(group.well) for group in _groups(status, view))


def _groups(status: Status, view: StatusStyle) -> list[_Group]:
    """Those first that have something to look at."""
    groups = []
    for _, state in sorted(status.observed.targets.items(), key=lambda item: natural(item[0])):
        head, rows = _node_lines(status, state, view), _rows(status, state, view)
        if state.reachable and not rows:
            head.append("  nothing runs here")
        troubled = not state.reachable or any(node_troubles(state, view.now))
        groups.append(_group(head, rows, troubled=troubled))
    if nowhere := [_absent_row(d, view) for d in status.absent(None)]:
        groups.append(_group([view.style(Tone.BAD, "on no node")], nowhere, troubled=True))
    return sorted(groups, key=lambda group: not (group.troubled or group.unwell))


def _group(head: list[str], rows: list[_Row], *, troubled: bool) -> _Group:
    unwell = [row for row in rows if not row.is_well]
    return _Group(head, unwell, [row for row in rows if row.is_well], troubled)


def _left_out(rows: list[_Row]) -> str:
    states = Counter(row.cells[_STATE] for row in rows)
    return f"{len(rows)} more: " + ", ".join(f"{n} {state}" for state, n in states.most_common())


def _node_lines(status: Status, state: TargetState, view: StatusStyle) -> list[str]:
    """The node itself: its line is never cut, only folded."""
    name = state.target.removeprefix("node/").replace("/", " ")
    lines = _folded((Tone.STRONG, name), node_facts(status, state, view.now), view)
    for fact in (*node_troubles(state, view.now), *node_downloads(status, state)):
        lines += _below(*fact, view)
    return lines


def _folded(first: Fact, facts: Iterable[Fact], view: StatusStyle) -> list[str]:
    """Facts beside each other, on as many lines as they need."""
    lines, used = [_tinted(view, *first)], len(first[1])
    for tone, text in facts:
        if view.width is not None and used + 2 + len(text) > view.width:
            lines.append("")
            used = 0
        lines[-1] += _GAP + _tinted(view, tone, text)
        used += 2 + len(text)
    return lines


def _rows(status: Status, state: TargetState, view: StatusStyle) -> list[_Row]:
    declared = {d.ref: d for d in status.declared if d.target == state.target}
    rows = [_row(i, declared.get(i.ref), status, view) for i in status.on(state.target)]
    return [*rows, *(_absent_row(d, view) for d in status.absent(state.target))]


def _row(
    instance: Instance,
    declared: DeclaredService | None,
    status: Status,
    view: StatusStyle,
) -> _Row:
    is_coming = instance.reason in _COMING
    tone = Tone.GOOD if instance.ready else Tone.CHANGE if is_coming else Tone.BAD
    cells = (
        instance.ref.label,
        state_word(instance),
        instance.endpoint or "-",
        str(instance.pid or "-"),
        span(view.now - instance.since) if instance.since else "-",
    )
    below = (
        *_address_facts(instance),
        *_facts_below(instance, declared, status, view),
        *_speed_facts(instance, status, view),
    )
    return _Row(tuple(map(printable, cells)), tone, below, is_well(instance, declared))


def _address_facts(instance: Instance) -> Iterator[Fact]:
    """What clients are given, to paste, and what they may ask of it there."""
    answers = instance.ready and not instance.is_scaled_to_zero
    spoken = speaks(instance) if answers and instance.endpoint else ()
    parts = (
        ("", [api.name for api in spoken if api.below_v1]),
        ("without /v1 for Anthropic's ", [api.name for api in spoken if not api.below_v1]),
    )
    if text := "; ".join(f"{where}{', '.join(names)}" for where, names in parts if names):
        yield Tone.QUIET, f"base_url {base_url(instance)} for {text}"


def _facts_below(
    instance: Instance, declared: DeclaredService | None, status: Status, view: StatusStyle
) -> Iterator[Fact]:
    """Why nothing answers, what refuses its change, what drifted, and a router's models."""
    blocked = declared.message if declared is not None else ""  # may be what it waits for
    is_silent = not instance.ready or instance.is_scaled_to_zero
    if instance.message and is_silent and not blocked.startswith(instance.message):
        yield Tone.QUIET if instance.ready else None, instance.message
    if instance.reason in _LOGGED and instance.target.startswith("node/"):
        yield None, f"on the node, `fleet-agent logs {instance.ref.label}` shows more"
        if instance.reason == "NotResponding":
            again = starts_again(instance.ref, status.observed.targets[instance.target])
            yield None, f"{again} anew"
    pending = instance.pending
    if pending is not None and not (pending.message and blocked.startswith(pending.message)):
        why = f": {pending.message}" if pending.message else ""
        tone = Tone.CHANGE if pending.reason in _COMING else Tone.BAD
        yield tone, f"update pending: {pending.reason}{why}"
    if declared is not None and declared.message:  # what runs is not what is declared
        yield Tone.BAD, f"{declared.reason}: {declared.message}"
    for drift in instance.drifts:
        text = f"{_DRIFT_MARKS[drift.kind]} {drift.kind}: {drift.message}"
        yield Tone.CHANGE, f"{text}, first seen {age(view.now - drift.since)}"
    served = {m.name: m for m in instance.served}
    if is_asleep(instance) and instance.measured:
        takes = ", ".join(
            f"{show_bytes(size)} of {spelled(pool)}" for pool, size in instance.measured
        )
        yield None, f"takes {takes}; what it needs awake is kept for it"
    if len(instance.models) == 1 and advertised(instance):
        return  # its state is the service's
    for name in instance.models:
        model = served.get(name)
        state = model.state if model else "unknown"
        why = ": ".join(w for w in (model.reason, model.message) if w) if model else ""
        tone = Tone.BAD if name not in advertised(instance) else Tone.QUIET
        yield tone, f"{name} {state}{f', {why}' if why else ''}"


def _speed_facts(instance: Instance, status: Status, view: StatusStyle) -> Iterator[Fact]:
    """How fast it writes now, where it does, and how fast it was measured to be."""
    if now := status.tokens_per_second(instance):
        yield Tone.QUIET, f"writes {now:,.1f} tokens/s, the mean of the last minute"
    for result, stale in status.benchmarks(instance):
        yield Tone.QUIET, speed_text(result, stale, view.now)


def _absent_row(declared: DeclaredService, view: StatusStyle) -> _Row:
    below = ((None, declared.message),) if declared.message else ()
    tone = Tone.QUIET if declared.is_meant or declared.reason == "Unknown" else Tone.BAD
    since = "-" if declared.since is None else span(view.now - declared.since)
    cells = (declared.ref.label, declared.reason, "-", "-", since)
    return _Row(cells, tone, below, declared.is_meant)


def _columns(rows: list[_Row], width: int | None) -> dict[int, int]:
    """Which cells to show, and how wide: {index: width}. Columns that say nothing are left out."""
    shown = [i for i in range(len(_HEADER)) if i < 2 or any(row.cells[i] != "-" for row in rows)]
    wide = {i: max(len(_HEADER[i]), *(len(row.cells[i]) for row in rows)) for i in shown if rows}
    for name in _GIVEN_UP:
        if width is not None and sum(w + len(_GAP) for w in wide.values()) > width:
            wide.pop(_HEADER.index(name), None)
    return wide


def _table(rows: list[_Row], columns: dict[int, int], view: StatusStyle) -> Iterator[str]:
    for row in rows:
        yield _line(row.cells, columns, partial(view.style, row.tone))
        if _ENDPOINT not in columns and row.cells[_ENDPOINT] != "-":
            yield from _below(None, row.cells[_ENDPOINT], view)
        for tone, text in row.below:
            yield from _below(tone, text, view)


def _line(cells: tuple[str, ...], columns: dict[int, int], tint: Callable[[str], str] = str) -> str:
    """One row of the table. The state is tinted after it was padded: escape codes have no width."""
    padded = [
        tint(f"{cells[i]:<{w}}") if i == _STATE else f"{cells[i]:<{w}}" for i, w in columns.items()
    ]
    return (_GAP + _GAP.join(padded)).rstrip()


def _below(tone: Tone | None, text: str, view: StatusStyle) -> Iterator[str]:
    """Wrapped at the terminal's edge; for a program every message is one line."""
    plain = printable(text)
    lines = [plain]
    if view.width is not None:
        lines = textwrap.wrap(plain, max(20, view.width - 6), break_long_words=False) or [""]
    for line in lines:
        yield "      " + _tinted(view, tone, line)


def _tinted(view: StatusStyle, tone: Tone | None, text: str) -> str:
    return view.style(tone, text) if tone else text


def _summary(status: Status) -> str:
    """One line that says whether there is anything to do."""
    everything = status.observed.instances
    missing = [d for t in (*status.observed.targets, None) for d in status.absent(t)]
    ready = sum(i.ready for i in everything)
    total = len(everything) + sum(not d.is_meant for d in missing)
    silent = sum(not s.reachable for s in status.observed.targets.values())
    text = (
        f"{ready} of {total} services ready"
        if total
        else "nothing should run"
        if missing
        else "no services"
    )
    if at_zero := sum(i.ready and i.is_scaled_to_zero for i in everything):
        text += f", {at_zero} of them scaled to zero"
    for reason, label in MEANT.items():
        if count := sum(d.reason == reason for d in missing):
            text += f", {count} {label}"
    targets = status.observed.targets
    word = "nodes" if all(target.startswith("node/") for target in targets) else "targets"
    return text + (f"; {silent} of {len(targets)} {word} did not answer" if silent else "")
