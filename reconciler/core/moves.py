"""Moves of services between targets: the copy stays until its successor is ready. Pure.

`awaiting` marks each move before the changes are ordered: a move that awaits its successor frees
nothing. `settled` holds back, with the reason, each move whose successor is refused or overdue. No
clock ends a copy: a move that takes too long is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from reconciler.api.meta import ObjectRef
from reconciler.api.service_parts import Rollout
from reconciler.core.observation import Instance, Observation, Successor, starts_again
from reconciler.core.plan import Action, Blocked, Change, Restart
from reconciler.fleet.workload import Workload

_Key = tuple[str, ObjectRef]
_HANDOVER_S = Rollout.model_construct().handover  # of a service that states none

MAY_END = ("NotReachable", "MoveStuck")
"""Reasons for which a copy stays that may end by themselves. The others wait for a person."""


def moving(
    target: str, instances: Iterable[Instance], workloads: Iterable[Workload]
) -> dict[ObjectRef, Workload]:
    """Return the services that leave `target`, each as it is declared at its new home."""
    here = {instance.ref for instance in instances if instance.target == target}
    if not here:
        return {}
    declared = [w for w in workloads if w.ref in here]
    staying = {w.ref for w in declared if w.target == target}
    return {w.ref: w for w in declared if w.ref not in staying and not w.suspended}


def handover_s(want: Workload) -> float:
    """Return the seconds after which the move of a service is overdue."""
    return float(want.lifecycle.get("rollout.handover", _HANDOVER_S))


def awaiting(changes: Iterable[Change], observed: Observation) -> list[Change]:
    """Mark each move whose successor is not ready with what the move awaits."""
    changes = list(changes)
    if all(change.action is not Action.MOVE for change in changes):
        return changes
    running = {(i.target, i.ref): i for i in observed.instances}
    interrupted = {(c.target, c.ref) for c in changes if _interrupts(c)}
    return [
        replace(change, awaits=_awaits(change, observed, running, interrupted))
        if change.action is Action.MOVE
        else change
        for change in changes
    ]


def settled(
    changes: Iterable[Change], blocked: Iterable[Blocked], observed: Observation
) -> tuple[list[Change], list[Blocked]]:
    """Hold back the moves that do not happen as things are: the other changes, and a hold for each
    such move."""
    refusals = {(item.target, ref): item for item in blocked for ref in (item.ref, *item.holds)}
    going: list[Change] = []
    stuck: list[Blocked] = []
    for change in changes:
        why = _why_stuck(change, refusals, observed) if change.action is Action.MOVE else None
        if why is None:
            going.append(change)
            continue
        reason, message = why
        at = (change.source, change.target, (change.ref,))
        stuck.append(Blocked(change.ref, reason, message, *at, home=change.home))
    return going, stuck


def place(target: str) -> str:
    """A target in words."""
    return target.replace("/", " ")


def _awaits(
    change: Change,
    observed: Observation,
    running: Mapping[_Key, Instance],
    interrupted: set[_Key],
) -> str:
    """Return why the copy has to stay; empty if its successor is ready and keeps running."""
    assert change.home is not None
    home = observed.targets.get(change.home)
    if home is None:
        known = _known(change, observed)
        return "" if known.ready else known.message
    there = running.get((change.home, change.ref))
    if not home.reachable:
        return home.message or "it does not answer"
    if change.home.startswith("node/") and home.message:  # an answer that is too old
        return home.message
    if there is None:
        return "it is not there yet"
    if not there.ready or there.gone:
        message = f": {there.message}" if there.message else ""
        return f"there it is {there.reason}{message}"
    return "it is restarted there first" if (change.home, change.ref) in interrupted else ""


def _why_stuck(
    change: Change, refusals: Mapping[tuple[str | None, ObjectRef], Blocked], observed: Observation
) -> tuple[str, str] | None:
    """Reason and message of a move that does not happen; None: it happens, or may happen soon."""
    if not change.awaits:
        return None
    known = _known(change, observed)
    reason, message = _refusal(change, refusals, observed) or (known.refusal, known.message)
    if known.is_overdue:
        why = f"{reason}: {message}" if reason else change.awaits
        return "MoveStuck", _stays(change, f"not ready within rollout.handover ({why})")
    return (reason, _stays(change, message)) if reason else None


def _refusal(
    change: Change, refusals: Mapping[tuple[str | None, ObjectRef], Blocked], observed: Observation
) -> tuple[str, str] | None:
    """Return why the successor does not become ready, by this plan and its target."""
    assert change.home is not None
    want, home = change.desired, observed.targets.get(change.home)
    if home is None:
        if want is not None and not want.takes_new and not _known(change, observed).refusal:
            return "NodeTakesNothingNew", f"{change.home} is unschedulable and takes nothing new"
        return None
    if not home.reachable:
        return "NotReachable", home.message or "it does not answer"
    if want is not None and home.keeps_stopped(want):
        return "StoppedByHand", f"it was stopped there by hand: {starts_again(change.ref, home)}"
    item = refusals.get((change.home, change.ref)) or refusals.get((None, change.ref))
    return (item.reason, item.message) if item else None


def _stays(change: Change, why: str) -> str:
    assert change.home is not None
    return f"it stays on {place(change.target)} until it is ready on {place(change.home)}: {why}"


def _known(change: Change, observed: Observation) -> Successor:
    """The successor as the target that the service leaves knows it."""
    assert change.home is not None
    known = observed.targets[change.target].successors.get(change.ref)
    return known if known and known.home == change.home else Successor(change.home)


def _interrupts(change: Change) -> bool:
    """True if the service does not answer on its target for a while, or ever again."""
    if change.is_shown_only:
        return False
    ends = change.action in (Action.DELETE, Action.STOP, Action.REPLACE, Action.DRIFT)
    return ends or change.impact.restart is Restart.RESTART
