"""What a status says of a node itself: facts for its line, and the lines below that. Pure.

A fact is a text with its tone; None: the text's own colour.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import TypeAlias

from reconciler.api.nodestate import DownloadState
from reconciler.api.quantity import show_bytes
from reconciler.core.observation import RevisionState, TargetState
from reconciler.report.fields import pool_label
from reconciler.report.spans import age, span
from reconciler.report.status import PoolUse, Status, pool_uses
from reconciler.report.terminal import Tone, printable, short_revision

Fact: TypeAlias = tuple[Tone | None, str]

_BAR_WIDTH = 10


def node_facts(status: Status, state: TargetState, now: float) -> Iterator[Fact]:
    """For the node's own line; `now` in seconds since the epoch."""
    answer = status.states.get(state.target)
    if not state.reachable:
        seen = "never seen" if state.seen_at is None else f"last seen {age(now - state.seen_at)}"
        yield Tone.BAD, f"did not answer ({seen})"
    if state.revision is not None:
        yield _revision(state.revision, status.revision)
    uses = pool_uses(state, status.taking(state.target))
    names = tuple(use.name for use in uses)
    for pool in uses:
        yield from _pool(pool, names)
    if answer and answer.pressure and answer.pressure.level != "normal":
        tone = Tone.BAD if answer.pressure.level == "critical" else Tone.CHANGE
        yield tone, f"memory pressure {answer.pressure.level}"
    if answer:
        yield Tone.QUIET, f"agent {printable(answer.agent_version)}"
    if answer and state.seen_at is not None:
        yield Tone.QUIET, f"seen {age(now - state.seen_at)}"


def node_troubles(state: TargetState, now: float) -> Iterator[Fact]:
    """What is wrong with it: a line each; `now` in seconds since the epoch."""
    if state.message:
        yield Tone.BAD, state.message
    if state.revision is not None:
        for problem in state.revision.problems:
            yield Tone.BAD, problem
        if state.revision.held:
            yield Tone.CHANGE, state.revision.held
        if state.revision.lost_since is not None:
            yield Tone.BAD, _lost(state.revision.lost, now - state.revision.lost_since)


def node_downloads(status: Status, state: TargetState) -> Iterator[Fact]:
    """What it downloads: a line each."""
    answer = status.states.get(state.target)
    for download in answer.downloads if answer else ():
        yield _download(download)


def _revision(its: RevisionState, newest: str | None) -> Fact:
    at = f"on {_short(its.applied)}" if its.applied else "no revision yet"
    if its.refused is not None:
        part = "parts of it" if its.refused == its.applied else _short(its.refused)
        return Tone.BAD, f"{at}, refuses {part}"
    if its.held:
        return Tone.CHANGE, f"{at}, held there"
    if its.lost_since is not None:
        return Tone.CHANGE, f"{at}, source lost"
    committed = newest.partition("+")[0] if newest else None
    if committed and its.applied != committed:
        return Tone.CHANGE, f"{at}, behind {_short(committed)}"
    return None, at


def _lost(why: str, seconds: float) -> str:
    because = f": {why}" if why else ""
    return f"its source cannot be read for {span(seconds)}, what runs stays as it is{because}"


def _pool(pool: PoolUse, pools: Collection[str]) -> Iterator[Fact]:
    name = pool_label(pool.name, pools)
    used = "?" if pool.used_bytes is None else show_bytes(pool.used_bytes)
    of = f" of {show_bytes(pool.budget_bytes)}" if pool.budget_bytes is not None else ""
    is_over = (pool.used_bytes or 0) > (pool.budget_bytes or math.inf)
    yield Tone.BAD if is_over else None, f"{name} {_bar(pool)}{used}{of}"
    if pool.others_bytes:
        whose = "other processes" if len(pools) == 1 else f"other processes on {name}"
        yield None, f"{whose} {show_bytes(pool.others_bytes)}"


def _bar(pool: PoolUse) -> str:
    """How full it is of our services; nothing where that is not known."""
    if pool.used_bytes is None or not pool.budget_bytes:
        return ""
    filled = min(_BAR_WIDTH, math.ceil(_BAR_WIDTH * pool.used_bytes / pool.budget_bytes))
    return f"[{'#' * filled}{'-' * (_BAR_WIDTH - filled)}] "


def _download(download: DownloadState) -> Fact:
    got, total = show_bytes(download.received_bytes), download.total_bytes
    if download.reason:
        message = f": {download.message}" if download.message else ""
        return Tone.BAD, f"download {download.model}: {download.reason}{message}"
    if not total:
        return None, f"download {download.model}: {got}"
    share = min(100, 100 * download.received_bytes // total)
    return None, f"download {download.model}: {share} %, {got} of {show_bytes(total)}"


def _short(revision: str) -> str:
    return printable(short_revision(revision))
