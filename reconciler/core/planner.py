"""Decide what to change. No IO, no clock: same input, same plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from reconciler.api.meta import ObjectRef
from reconciler.api.reasons import REASONS
from reconciler.core.comparison import Causes, decide, leave
from reconciler.core.download import charged_once, download_bytes
from reconciler.core.drain import with_drain
from reconciler.core.kept_decisions import KeptDecisions
from reconciler.core.moves import awaiting, settled
from reconciler.core.observation import Instance, Observation, TargetState
from reconciler.core.plan import ENDED, Action, Blocked, Change, Impact, Plan, Restart
from reconciler.core.prune import PruneLimits, guard_removals
from reconciler.core.resource import FindSized, nothing_sized
from reconciler.core.transition import order_changes
from reconciler.core.verdicts import without_refused
from reconciler.fleet.workload import Workload
from reconciler.memo import Same


@dataclass(frozen=True, slots=True)
class Policy:
    """The Fleet's rules for carrying out a plan. `incomplete`: why absence from this revision
    proves nothing, where it does not. `drained`: targets that everything leaves."""

    drift_enforced: bool = True
    prune: PruneLimits = field(default_factory=PruneLimits)
    incomplete: str = ""
    drained: frozenset[str] = frozenset()


def make_plan(
    revision: str,
    desired: Iterable[Workload],
    blocked: Iterable[Blocked],
    observed: Observation,
    policy: Policy,
    causes: Causes,
    sized: FindSized = nothing_sized,
    kept: KeptDecisions | None = None,
) -> Plan:
    """Pair desired with observed by (target, service) and say what to do with each pair.

    Only targets in `observed` are planned. A service in a Blocked's `holds` stays as it is on the
    Blocked's target, or on all where that names none.
    `sized` finds how a service was sized, to say what would fit where it does not. `kept`: what
    earlier plans found.
    """
    kept = kept or KeptDecisions()
    held_back = list(blocked)
    held = {(item.target, ref) for item in held_back for ref in (item.ref, *item.holds)}
    wanted = {(w.target, w.ref): w for w in desired}
    live = {(i.target, i.ref): i for i in observed.instances}
    homes = {workload.ref: workload for workload in wanted.values()}
    unchanged: Counter[str] = Counter()
    changes: list[Change] = []
    under_way: list[Change] = []
    states = {target: kept.state(state) for target, state in observed.targets.items()}
    rules = (policy.drift_enforced, policy.incomplete, policy.drained, Same(causes))
    for key in sorted([*wanted, *(key for key in live if key not in wanted)]):  # in order, mostly
        target, ref = key
        state = states.get(target)
        if state is None:
            continue
        want, have, home = wanted.get(key), live.get(key), homes.get(ref)
        is_held = (None, ref) in held or key in held
        decide_pair = partial(_decided, want, have, state, home, policy, causes, is_held=is_held)
        step = kept.steps.find(key, (want, have, state, home, is_held, rules), decide_pair)
        match step:
            case None:
                unchanged[target] += have is not None
                under_way += _under_way(want, have, state)
            case Blocked():
                held_back.append(step)
            case Change():
                changes.append(step)
    going_on, unconfirmed = guard_removals(changes, observed, policy.prune)
    held_back += unconfirmed
    marked = awaiting(going_on, observed)
    ordered, unfit = order_changes(marked, observed, sized, under_way, kept)
    waiting = {(change.target, change.ref) for change in under_way}
    for target, _ in waiting & {(item.target, item.ref) for item in unfit}:
        unchanged[target] -= 1
    held_back += unfit
    ordered, refused = without_refused(ordered, observed, revision)
    held_back += refused
    ordered, stuck = settled(ordered, held_back, observed)
    held_back += stuck
    kept.steps.keep(wanted.keys() | live.keys())
    return Plan(
        revision=revision,
        changes=tuple(charged_once(ordered, observed)),
        blocked=tuple(held_back),
        unreachable=tuple(s for _, s in sorted(observed.targets.items()) if not s.reachable),
        unchanged=dict(sorted(unchanged.items())),
        targets=_of_this_fleet(observed, {*homes, *(ref for _, ref in held)}),
    )


def _of_this_fleet(
    observed: Observation, declared: Collection[ObjectRef]
) -> Mapping[str, TargetState]:
    """The targets, without notes about services that the fleet does not declare: a machine may have
    served another one."""
    if not any(state.stopped for state in observed.targets.values()):
        return observed.targets
    there = {*declared, *(instance.ref for instance in observed.instances)}
    return {
        name: replace(state, stopped={r: d for r, d in state.stopped.items() if r in there})
        if not there.issuperset(state.stopped)
        else state
        for name, state in observed.targets.items()
    }


def _decided(
    want: Workload | None,
    have: Instance | None,
    state: TargetState,
    home: Workload | None,
    policy: Policy,
    causes: Causes,
    *,
    is_held: bool,
) -> Change | Blocked | None:
    step = _step(want, have, state, home, policy, causes, is_held=is_held)
    return with_drain(step, have) if isinstance(step, Change) else step


def _step(
    want: Workload | None,
    have: Instance | None,
    state: TargetState,
    home: Workload | None,
    policy: Policy,
    causes: Causes,
    *,
    is_held: bool,
) -> Change | Blocked | None:
    """What to do with one pair; None: it stays as it is. `home` is the service where it belongs."""
    meant = want or have
    assert meant is not None
    if state.reachable and state.keeps_stopped(meant):
        if have is None:
            return None
        # Also one that is held: holding is the fleet's word, not theirs.
        return Change(
            Action.STOP, state.target, meant.ref, "StoppedByHand", causes.where(meant.ref)
        )
    leaves = have is not None and state.reachable and state.target in policy.drained
    if is_held and not leaves:
        return None
    if want is not None and not want.needs and (why := state.refused.get(ref := want.ref)):
        return Blocked(ref, "MemoryFits", why, causes.where(ref), state.target, (ref,))
    if leaves and have is not None and (home is not None or is_held):
        step: Change | Blocked | None = leave(have, home, causes)
    else:
        step = decide(want, have, state, home, causes)
    step = _within(policy, policy.incomplete or state.incomplete, step, want, have)
    return _unless_in_vain(step, want, have, state, causes)


def _unless_in_vain(
    step: Change | Blocked | None,
    want: Workload | None,
    have: Instance | None,
    state: TargetState,
    causes: Causes,
) -> Change | Blocked | None:
    """Nothing is stopped for a start that would fail, and nothing is said to start where it would
    not: neither what a change starts, nor what its owner tries to start again and again. A process
    whose model is refused by now goes on, and is reported."""
    if want is None or want.suspended:
        return step
    refused = have.refused_model(want) if have is not None and want.pool is None else None
    is_tried = step is None and have is not None and have.pid is None and not have.ready
    is_change = isinstance(step, Change) and not step.is_shown_only and _starts(step)
    if not (is_tried or is_change or (step is None and refused)):
        return step
    obstacle = refused or state.obstacle_of(want)
    if obstacle is None:
        return step
    kept = "; left as it is" if have is not None and have.pid is not None else ""
    cause = step.source if step is not None else causes.where(want.ref)
    message = f"{obstacle.message}{kept}"
    return Blocked(want.ref, obstacle.reason, message, cause, state.target, (want.ref,))


def _starts(change: Change) -> bool:
    """Whether it starts a process, will if that cannot be changed while it runs, or brings back
    what it starts from."""
    is_later = change.impact.restart is Restart.HOT or change.reason == "ModelGone"
    return change.action in _STARTS or is_later


def _under_way(
    want: Workload | None, have: Instance | None, state: TargetState
) -> Iterator[Change]:
    """A service that waits for its models, as the change that was made for it."""
    if want is None or have is None or have.ready or have.gone or have.pid is not None:
        return
    if state.disk is not None and (missing := download_bytes(want, state)) != 0:
        impact = Impact(download_bytes=missing)
        yield Change(
            Action.CREATE, state.target, want.ref, "Added", have.source, impact=impact, desired=want
        )


def _within(
    policy: Policy,
    incomplete: str,
    step: Change | Blocked | None,
    want: Workload | None,
    have: Instance | None,
) -> Change | Blocked | None:
    """What becomes of a step by the Fleet's policy and the service's own annotations."""
    if not isinstance(step, Change):
        return step
    is_changed = step.action is Action.DRIFT and step.reason not in ENDED
    if is_changed and not step.is_shown_only and not policy.drift_enforced:
        step = replace(step, reason="DriftReported", impact=Impact())
    if step.reason == "Removed" and incomplete:
        return Blocked(
            step.ref,
            "RevisionIncomplete",
            incomplete,
            step.source,
            step.target,
            (step.ref,),
        )
    meant = want or step.desired  # of a move: as it is declared for its new home
    is_held = have is not None and step.reason not in _NEVER_HELD and _is_held(meant, have)
    if is_held:
        return _leave_alone(step)
    return step


_STARTS = (Action.CREATE, Action.REPLACE, Action.DRIFT)
_NEVER_HELD = ("RestartedByHand", *ENDED)  # by a person's hand; nothing was left


def _is_held(want: Workload | None, have: Instance) -> bool:
    """The annotation on the object; on one that is gone, what it said last. Also where somebody
    put it on what runs."""
    lifecycle = want.lifecycle if want else have.inputs.get("lifecycle", {})
    return "true" in (lifecycle.get("hold"), have.by_hand.get("hold"))


def _leave_alone(step: Change) -> Change | Blocked:
    """Show what would happen to a held service. What touches no process may happen."""
    is_noted = step.action is Action.UPDATE and step.impact.restart is Restart.NONE
    if is_noted or step.is_shown_only:
        return step
    fields = ", ".join(
        f"{f.path} {_or_unset(f.before)} -> {_or_unset(f.after)}"
        for f in step.fields
        if f.path != "hold"  # the sentence says that it is there
    )
    message = f"{fields or REASONS[step.reason]}; left as it is by its hold annotation"
    return Blocked(step.ref, "Held", message, step.source, step.target, (step.ref,))


def _or_unset(value: object) -> object:
    return "unset" if value is None else value
