"""How long a change may wait until nobody is answered any more. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from reconciler.core.observation import Instance
from reconciler.core.plan import Action, Change, Restart
from reconciler.runtimes import RUNTIMES

_FIELD = "rollout.drainTimeout"
_ENDS = frozenset({Action.REPLACE, Action.DELETE, Action.STOP, Action.MOVE})


def with_drain(change: Change, have: Instance | None) -> Change:
    """The change with the longest that it waits for requests in flight, where it ends or reloads
    what answers them: a process or a pod waits as it was started to."""
    is_end = change.action in _ENDS or change.impact.restart is not Restart.NONE
    if have is None or change.is_shown_only or not is_end or not _answers(have):
        return change
    longest_s = _drain_timeout_s(have)
    return replace(change, impact=replace(change.impact, drain_seconds=longest_s))


def _answers(have: Instance) -> bool:
    """Whether it does, and its requests can be counted: nothing else is waited for."""
    row = RUNTIMES.get(have.runtime)
    is_there = have.ready and not have.gone and not have.is_scaled_to_zero
    return is_there and row is not None and row.counts_requests


def _drain_timeout_s(have: Instance) -> float | None:
    """None: it comes from a program that does not say it, or from someone who wrote it wrong."""
    for part in ("lifecycle", "settings"):
        values = have.inputs.get(part)
        stated = values.get(_FIELD) if isinstance(values, Mapping) else None
        if isinstance(stated, int | float):
            return float(stated)
    return None
