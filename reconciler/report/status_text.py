"""What runs where and how it is, as a table for people. Pure.

Nodes one below the other, each with its services; what is to be said of a service stands below it.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from reconciler.agents.arrival import short
from reconciler.api.nodestate import DownloadState
from reconciler.api.quantity import show_bytes
from reconciler.plan import DriftKind, Instance, RevisionState, TargetState
from reconciler.report.spans import age, span
from reconciler.report.status import Declared, PoolUse, Status, advertised, pool_uses
from reconciler.report.terminal import PLAIN, Style, Tone, printable

_HEADER = ("SERVICE", "STATE", "ENDPOINT", "PID", "SINCE")
_GAP = "  "
_STATE, _ENDPOINT = 1, 2
_GIVEN_UP = ("PID", "SINCE", "ENDPOINT")  # in this order, where a terminal is narrow
_COMING = ("Downloading", "Loading")
_DRIFT_MARKS = {
    DriftKind.RESTART: "!",
    DriftKind.FOREIGN: "!",
    DriftKind.DEFERRED: "=",
    DriftKind.COSMETIC: "~",
}


@dataclass(frozen=True, slots=True)
class View:
    """How to show it: `now` in seconds since the epoch, `width` None for no limit."""

    now: float
    width: int | None = None
    style: Style = PLAIN


@dataclass(frozen=True, slots=True)
class _Row:
    """One service on one node: its cells, and what stands below it."""

    cells: tuple[str, ...]
    tone: Tone
    below: tuple[tuple[Tone | None, str], ...] = ()


def status_text(status: Status, view: View) -> str:
    """The whole table, ending in a newline."""
    groups = [
        (_node_lines(status, state, view), _rows(status, state, view))
        for _, state in sorted(status.observed.targets.items())
    ]
    if nowhere := [_absent_row(d) for d in status.absent(None)]:
        groups.append(([view.style(Tone.BAD, "on no node")], nowhere))
    columns = _columns([row for _, rows in groups for row in rows], view.width)
    lines = [view.style(Tone.QUIET, _line(_HEADER, columns))] if columns else []
    for head, rows in groups:
        lines += head
        lines += _table(rows, columns, view) if rows else ["  nothing runs here"]
        lines.append("")
    return "\n".join([*lines, _summary(status)]) + "\n"


def _node_lines(status: Status, state: TargetState, view: View) -> list[str]:
    """The node itself: what stands in its line is cut nowhere, only folded."""
    said = status.states.get(state.target)
    name = state.target.removeprefix("node/").replace("/", " ")
    facts: list[tuple[Tone | None, str]] = []
    if not state.reachable:
        seen = (
            "never seen" if state.seen_at is None else f"last seen {age(view.now - state.seen_at)}"
        )
        facts.append((Tone.BAD, f"did not answer ({seen})"))
    if state.revision is not None:
        facts.append(_revision_words(state.revision, status.revision))
    facts += [_pool_words(pool) for pool in pool_uses(state, status.on(state.target))]
    if said and said.pressure and said.pressure.level != "normal":
        tone = Tone.BAD if said.pressure.level == "critical" else Tone.CHANGE
        facts.append((tone, f"memory pressure {said.pressure.level}"))
    if said:
        facts.append((Tone.QUIET, f"agent {printable(said.agent_version)}"))
    if said and state.seen_at is not None:
        facts.append((Tone.QUIET, f"seen {age(view.now - state.seen_at)}"))
    lines = _folded((Tone.STRONG, name), facts, view)
    for trouble in _node_troubles(state):
        lines += _below(*trouble, view)
    for download in said.downloads if said else ():
        lines += _below(*_download_words(download), view)
    return lines


def _folded(
    first: tuple[Tone | None, str], facts: list[tuple[Tone | None, str]], view: View
) -> list[str]:
    """Facts beside each other, on as many lines as they need."""
    lines, used = [_tinted(view, *first)], len(first[1])
    for tone, text in facts:
        if view.width is not None and used + 2 + len(text) > view.width:
            lines.append("")
            used = 0
        lines[-1] += _GAP + _tinted(view, tone, text)
        used += 2 + len(text)
    return lines


def _revision_words(its: RevisionState, newest: str | None) -> tuple[Tone | None, str]:
    at = _short(its.applied) if its.applied else "nothing yet"
    if its.refused is not None:
        return Tone.BAD, f"at {at}, refuses {_short(its.refused)}"
    if its.held:
        return Tone.CHANGE, f"at {at}, holds there"
    committed = newest.partition("+")[0] if newest else None
    if committed and its.applied != committed:
        return Tone.CHANGE, f"at {at}, behind {_short(committed)}"
    return None, f"at {at}"


def _pool_words(pool: PoolUse) -> tuple[Tone | None, str]:
    used = "?" if pool.used_bytes is None else show_bytes(pool.used_bytes)
    of = f" of {show_bytes(pool.budget_bytes)}" if pool.budget_bytes is not None else ""
    others = f", others {show_bytes(pool.others_bytes)}" if pool.others_bytes else ""
    is_over = (pool.used_bytes or 0) > (pool.budget_bytes or math.inf)
    return Tone.BAD if is_over else None, f"{printable(pool.name)} {used}{of}{others}"


def _node_troubles(state: TargetState) -> Iterator[tuple[Tone | None, str]]:
    if state.message:
        yield Tone.BAD, state.message
    if state.revision is not None:
        for problem in state.revision.problems:
            yield Tone.BAD, problem
        if state.revision.held:
            yield Tone.CHANGE, state.revision.held


def _download_words(download: DownloadState) -> tuple[Tone | None, str]:
    got, total = show_bytes(download.received_bytes), download.total_bytes
    if download.reason:
        message = f": {download.message}" if download.message else ""
        return Tone.BAD, f"download {download.model}: {download.reason}{message}"
    if not total:
        return None, f"download {download.model}: {got}"
    share = min(100, 100 * download.received_bytes // total)
    return None, f"download {download.model}: {share} %, {got} of {show_bytes(total)}"


def _rows(status: Status, state: TargetState, view: View) -> list[_Row]:
    declared = {d.ref: d for d in status.declared if d.target == state.target}
    rows = [_row(i, declared.get(i.ref), view) for i in status.on(state.target)]
    return [*rows, *map(_absent_row, status.absent(state.target))]


def _row(instance: Instance, declared: Declared | None, view: View) -> _Row:
    is_coming = instance.reason in _COMING
    tone = Tone.GOOD if instance.ready else Tone.CHANGE if is_coming else Tone.BAD
    cells = (
        instance.ref.label,
        "Ready" if instance.ready else instance.reason,
        instance.endpoint or "-",
        str(instance.pid or "-"),
        span(view.now - instance.since) if instance.since else "-",
    )
    below = tuple(_words_below(instance, declared, view))
    return _Row(tuple(map(printable, cells)), tone, below)


def _words_below(
    instance: Instance, declared: Declared | None, view: View
) -> Iterator[tuple[Tone | None, str]]:
    """Why it is not ready, what refuses its change, what drifted, and a router's models."""
    if instance.message and not instance.ready:
        yield None, instance.message
    if declared is not None and declared.message:  # what runs is not what is declared
        yield Tone.BAD, f"{declared.reason}: {declared.message}"
    for drift in instance.drifts:
        words = f"{_DRIFT_MARKS[drift.kind]} {drift.kind}: {drift.message}"
        yield Tone.CHANGE, f"{words}, first seen {age(view.now - drift.since)}"
    served = {m.name: m for m in instance.served}
    if len(instance.models) == 1 and advertised(instance):
        return  # its state is the service's
    for name in instance.models:
        model = served.get(name)
        state = model.state if model else "unknown"
        why = ": ".join(w for w in (model.reason, model.message) if w) if model else ""
        tone = Tone.BAD if name not in advertised(instance) else Tone.QUIET
        yield tone, f"{name} {state}{f', {why}' if why else ''}"


def _absent_row(declared: Declared) -> _Row:
    below = ((None, declared.message),) if declared.message else ()
    tone = Tone.QUIET if declared.reason == "Unknown" else Tone.BAD
    return _Row((declared.ref.label, declared.reason, "-", "-", "-"), tone, below)


def _columns(rows: list[_Row], width: int | None) -> dict[int, int]:
    """Which cells to show, and how wide: {index: width}. Columns that say nothing are left out."""
    shown = [i for i in range(len(_HEADER)) if i < 2 or any(row.cells[i] != "-" for row in rows)]
    wide = {i: max(len(_HEADER[i]), *(len(row.cells[i]) for row in rows)) for i in shown if rows}
    for name in _GIVEN_UP:
        if width is not None and sum(w + len(_GAP) for w in wide.values()) > width:
            wide.pop(_HEADER.index(name), None)
    return wide


def _table(rows: list[_Row], columns: dict[int, int], view: View) -> Iterator[str]:
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


def _below(tone: Tone | None, text: str, view: View) -> Iterator[str]:
    """Wrapped at the terminal's edge; for a program every message is one line."""
    plain = printable(text)
    lines = [plain]
    if view.width is not None:
        lines = textwrap.wrap(plain, max(20, view.width - 6), break_long_words=False) or [""]
    for line in lines:
        yield "      " + _tinted(view, tone, line)


def _tinted(view: View, tone: Tone | None, text: str) -> str:
    return view.style(tone, text) if tone else text


def _summary(status: Status) -> str:
    """One line that says whether there is anything to do."""
    everything = status.observed.instances
    missing = [d for t in (*status.observed.targets, None) for d in status.absent(t)]
    ready = sum(i.ready for i in everything)
    total = len(everything) + len(missing)
    silent = sum(not s.reachable for s in status.observed.targets.values())
    text = f"{ready} of {total} services ready" if total else "no services"
    targets = status.observed.targets
    word = "nodes" if all(target.startswith("node/") for target in targets) else "targets"
    return text + (f"; {silent} of {len(targets)} {word} did not answer" if silent else "")


def _short(revision: str) -> str:
    return printable(short(revision))
