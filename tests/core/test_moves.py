"""A service that moves: its copy stays until its successor is ready, whatever the clock says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.observation import (
    Instance,
    Observation,
    Successor,
    TargetState,
    Verdicts,
)
from reconciler.core.plan import Action, Blocked, Change, Plan
from reconciler.core.planner import Policy, make_plan
from reconciler.fleet.workload import Workload
from tests.support.builders import GIB, FixedCauses, instance, need, ref, workload

REVISION = "rev"


@dataclass(frozen=True)
class Kind:
    """A kind of move: where the copy is and where its successor is to be. `from_here`: the plan is
    the source's own, which is told of the other target and does not see it."""

    source: str
    home: str
    from_here: bool = False
    drains: bool = False


KINDS = {
    "node to node": Kind("node/mac", "node/linux"),
    "node to node, as its agent plans": Kind("node/mac", "node/linux", from_here=True),
    "node to cluster": Kind("node/mac", "cluster/prod"),
    "node to cluster, as its agent plans": Kind("node/mac", "cluster/prod", from_here=True),
    "cluster to node": Kind("cluster/prod", "node/linux"),
    "cluster to cluster": Kind("cluster/prod", "cluster/next"),
    "drain": Kind("node/mac", "node/linux", drains=True),
    "drain, as its agent plans": Kind("node/mac", "node/linux", from_here=True, drains=True),
}


@dataclass(frozen=True)
class World:
    """What a plan begins with."""

    kind: Kind
    want: Workload
    there: tuple[Instance, ...] = ()
    state: TargetState | None = None  # of the new home
    told: Successor | None = None  # by the source, of its successor
    overdue: bool = False
    blocked: tuple[Blocked, ...] = ()

    def plan(self, *more: Workload, source: TargetState | None = None) -> Plan:
        told = self.told or Successor(self.kind.home)
        told = replace(told, is_overdue=self.overdue)
        here = source or TargetState(self.kind.source, reachable=True)
        here = replace(here, successors={ref(): told})
        home = self.state or TargetState(self.kind.home, reachable=True)
        targets = {here.target: here}
        running = [copy(self.kind)]
        if not self.kind.from_here:
            targets[home.target] = home
            running += self.there
        policy = Policy(drained=frozenset({self.kind.source} if self.kind.drains else ()))
        seen = Observation(targets, tuple(running))
        wanted = (self.want, *more)
        return make_plan(REVISION, wanted, self.blocked, seen, policy, FixedCauses())


def at(target: str, **overrides: object) -> Workload:
    """The service as it is declared for a target."""
    kind, _, name = target.partition("/")
    place = {"node": name} if kind == "node" else {"cluster": name, "node": "pool"}
    return workload("chat", **place | overrides)


def copy(kind: Kind) -> Instance:
    return instance("chat", at(kind.source), target=kind.source)


def ready_there(kind: Kind, want: Workload) -> Instance:
    return instance("chat", want, target=kind.home)


LARGE = need(20 * GIB, budget=10 * GIB)


def no_memory(kind: Kind) -> World:
    told = Successor(kind.home, refusal="MemoryFits", message="needs 20 GiB")
    return World(kind, at(kind.home, needs=LARGE), told=told)


def unschedulable(kind: Kind) -> World:
    return World(kind, at(kind.home, takes_new=False))


def model_missing(kind: Kind) -> World:
    """The home's agent refuses the model, as it says; in a cluster the plan itself has the hold."""
    why = ("ModelUnavailable", "models.test answers 404")
    told = Successor(kind.home, refusal=why[0], message=why[1])
    want = at(kind.home)
    if kind.home.startswith("cluster/") or kind.from_here:
        held = Blocked(ref(), *why, None, kind.home)
        return World(kind, want, told=told, blocked=() if kind.from_here else (held,))
    verdicts = Verdicts(REVISION, {ref(): why})
    return World(kind, want, state=TargetState(kind.home, True, verdicts=verdicts))


def unreachable(kind: Kind) -> World:
    told = Successor(kind.home, refusal="NotReachable", message="connection refused")
    state = TargetState(kind.home, reachable=False, message="connection refused")
    return World(kind, at(kind.home), state=state, told=told)


def loading(kind: Kind) -> World:
    want = at(kind.home)
    there = replace(ready_there(kind, want), ready=False, reason="Loading")
    told = Successor(kind.home, message="there it is Loading")
    return World(kind, want, there=(there,), told=told)


OBSTACLES: Mapping[str, tuple[Callable[[Kind], World], str]] = {
    "no memory": (no_memory, "MemoryFits"),
    "unschedulable": (unschedulable, "NodeTakesNothingNew"),
    "no model": (model_missing, "ModelUnavailable"),
    "not reachable": (unreachable, "NotReachable"),
    "not ready yet": (loading, ""),
}


def of_source(plan: Plan, kind: Kind) -> tuple[list[Change], list[Blocked]]:
    changes = [c for c in plan.changes if (c.target, c.ref) == (kind.source, ref())]
    return changes, [b for b in plan.blocked if (b.target, b.ref) == (kind.source, ref())]


def is_released(change: Change) -> bool:
    return change.action in (Action.MOVE, Action.STOP, Action.DELETE) and not change.awaits


@pytest.mark.parametrize("overdue", [False, True], ids=["in time", "overdue"])
@pytest.mark.parametrize("obstacle", OBSTACLES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_stays_with_the_reason_until_its_successor_is_ready(
    kind: str, obstacle: str, *, overdue: bool
) -> None:
    move, (make, reason) = KINDS[kind], OBSTACLES[obstacle]
    world = replace(make(move), overdue=overdue)

    made = world.plan()
    changes, blocked = of_source(made, move)

    assert not any(map(is_released, changes))
    assert len(changes) + len(blocked) == 1, "either moving or blocked"
    if overdue:
        assert [b.reason for b in blocked] == ["MoveStuck"]
        assert reason in blocked[0].message
    else:
        assert [b.reason for b in blocked] == ([reason] if reason else [])
    assert made.exit_code == (3 if blocked else 2)
    if reason and not move.from_here and made.targets[move.home].reachable:
        there = [b.reason for b in made.blocked if b.target == move.home]
        assert there == [reason], "both sides are blocked"

    freed = World(
        move,
        at(move.home),
        there=(ready_there(move, at(move.home)),),
        told=Successor(move.home, ready=True),
        overdue=overdue,
    ).plan()

    assert [is_released(change) for change in of_source(freed, move)[0]] == [True]
    assert freed.blocked == ()


def test_a_successor_that_is_restarted_by_the_same_plan_is_not_ready() -> None:
    kind = KINDS["node to node"]
    old = at(kind.home, settings={"contextSize": 1})
    world = World(kind, at(kind.home), there=(instance("chat", old, target=kind.home),))

    (move,) = of_source(world.plan(), kind)[0]

    assert move.awaits == "it is restarted there first"


def test_a_successor_whose_agent_has_not_looked_at_its_node_is_not_ready() -> None:
    kind = KINDS["cluster to node"]
    stale = TargetState(kind.home, True, message="it has not looked at its node for 5 min")
    world = World(kind, at(kind.home), there=(ready_there(kind, at(kind.home)),), state=stale)

    (move,) = of_source(world.plan(), kind)[0]

    assert move.awaits == "it has not looked at its node for 5 min"


def test_a_copy_that_its_own_agent_keeps_is_blocked_in_every_plan() -> None:
    kind = KINDS["node to cluster"]
    verdicts = Verdicts(REVISION, {ref(): ("SuccessorUnknown", "it cannot ask a cluster")})
    world = World(kind, at(kind.home), there=(ready_there(kind, at(kind.home)),))

    made = world.plan(source=TargetState(kind.source, True, verdicts=verdicts))

    assert [b.reason for b in of_source(made, kind)[1]] == ["SuccessorUnknown"]


def test_a_copy_whose_successor_was_stopped_manually_waits_for_its_restart() -> None:
    kind, want = KINDS["node to node"], at("node/linux")
    state = TargetState(kind.home, True, stopped={ref(): want.inputs_digest})

    (blocked,) = of_source(World(kind, want, state=state).plan(), kind)[1]

    assert blocked.reason == "StoppedByHand"
    assert "`fleet-agent restart default/chat` starts it" in blocked.message


OTHER = workload("other", needs=need(5 * GIB))
RUNS = TargetState("node/mac", True, cached=frozenset({"ab" * 32}))


def test_a_service_waits_for_the_memory_of_a_copy_that_stays() -> None:
    kind = KINDS["node to node"]
    here = replace(copy(kind), needs=need(8 * GIB))
    states = {t: TargetState(t, True, cached=RUNS.cached) for t in (kind.source, kind.home)}

    def plan(*more: Instance) -> Plan:
        seen = Observation(states, (here, *more))
        return make_plan(REVISION, [at(kind.home), OTHER], [], seen, Policy(), FixedCauses())

    waits, goes = plan(), plan(ready_there(kind, at(kind.home)))

    (blocked,) = waits.blocked
    assert (blocked.ref, blocked.reason) == (OTHER.ref, "MemoryFits")
    assert "default/chat leaves once it is ready on node linux" in blocked.message
    assert [(c.ref.name, c.action) for c in goes.changes] == [
        ("chat", Action.MOVE),
        ("other", Action.CREATE),
    ]


def test_a_service_waits_for_the_port_of_a_copy_that_stays() -> None:
    kind = KINDS["node to node"]
    here = replace(copy(kind), port=8080, pid=1)
    states = {t: TargetState(t, True) for t in (kind.source, kind.home)}
    other = workload("other", port=8080)

    made = make_plan(
        *(REVISION, [at(kind.home), other], [], Observation(states, (here,))),
        *(Policy(), FixedCauses()),
    )

    (blocked,) = made.blocked
    assert (blocked.ref, blocked.reason) == (other.ref, "PortInUse")
    assert "default/chat's, which stays there until it is ready on node linux" in blocked.message


def test_a_service_that_is_suspended_while_it_moves_stops_here_too() -> None:
    kind = KINDS["node to node"]

    made = World(kind, at(kind.home, suspended=True)).plan()

    assert [(c.action, c.reason) for c in of_source(made, kind)[0]] == [(Action.STOP, "Suspended")]


TARGETS = ("node/mac", "node/linux", "cluster/prod")
NAMES = ("a", "b", "c")


@st.composite
def fleets(draw: st.DrawFn) -> tuple[list[Workload], Observation, Policy]:
    """Services with a copy anywhere, declared anywhere or nowhere, on targets in any state."""
    wanted, running = [], []
    sizes = st.sampled_from([GIB, 4 * GIB, 9 * GIB])
    for name in NAMES:
        home = draw(st.sampled_from((*TARGETS, None)))
        takes_new = draw(st.sampled_from([True, True, False]))
        needs, port = need(draw(sizes)), draw(st.sampled_from([None, 8080, 8081]))
        if home is not None:
            kind, _, where = home.partition("/")
            place = {"node": where} if kind == "node" else {"cluster": where, "node": "pool"}
            wanted.append(workload(name, takes_new=takes_new, needs=needs, port=port, **place))
        for target in draw(st.sets(st.sampled_from(TARGETS), max_size=2)):
            ready = draw(st.booleans())
            started = wanted[-1] if wanted and draw(st.booleans()) else workload(name, port=port)
            reason = "Ready" if ready else "Loading"
            running.append(
                replace(
                    instance(name, started, target=target, needs=needs, port=port),
                    ref=ref(name),
                    ready=ready,
                    reason=reason,
                    pid=draw(st.sampled_from([None, 7])),
                )
            )
    states = {}
    for target in TARGETS:
        told = {
            ref(name): Successor(
                draw(st.sampled_from(TARGETS)), is_overdue=draw(st.sampled_from([True, False]))
            )
            for name in NAMES
        }
        states[target] = TargetState(
            target,
            reachable=draw(st.sampled_from([True, True, False])),
            cached=frozenset({"ab" * 32}),
            successors=told,
        )
    empty = [t for t in TARGETS[:2] if t not in {w.target for w in wanted}]  # as placement has it
    drained = frozenset(draw(st.sets(st.sampled_from(empty), max_size=1)) if empty else ())
    return wanted, Observation(states, tuple(running)), Policy(drained=drained)


@given(fleets())
def test_no_plan_ends_the_last_ready_copy_of_a_declared_service(
    case: tuple[list[Workload], Observation, Policy],
) -> None:
    wanted, seen, policy = case
    declared = {w.ref for w in wanted}

    made = make_plan(REVISION, wanted, [], seen, policy, FixedCauses())

    ended = {(c.target, c.ref) for c in made.changes if is_released(c)}
    ended |= {
        (c.target, c.ref)
        for c in made.changes
        if c.action in (Action.REPLACE, Action.DRIFT) and not c.is_shown_only
    }
    ready = {(i.target, i.ref) for i in seen.instances if i.ready and i.ref in declared}
    moved = {(c.target, c.ref) for c in made.changes if c.action is Action.MOVE and not c.awaits}
    for _, service in moved & ready:
        left = {key for key in ready - ended if key[1] == service}
        assert left, made.changes
