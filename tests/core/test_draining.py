"""A machine with `drain: true`: what becomes of its services, and who has to say that they may
stop."""

from __future__ import annotations

from reconciler.core.observation import Observation, TargetState
from reconciler.core.plan import Action, Blocked, Plan
from reconciler.core.planner import Policy, make_plan
from reconciler.core.prune import PruneLimits
from reconciler.fleet.workload import Workload
from tests.support.builders import FixedCauses, instance, observed, ref, workload

OLD, NEW = "node/mac", "node/linux"


def drained(*wanted: Workload, confirmed: str = "", of: Workload | None = None) -> Plan:
    """The plan for two services on a drained node, which the revision holds where it says no other
    node."""
    seen = observed(instance("chat", of=of), instance("other"))
    held = [
        Blocked(ref(name), "NodeUnavailable", "", None, None, (ref(name),))
        for name in ("chat", "other")
        if ref(name) not in {w.ref for w in wanted}
    ]
    policy = Policy(prune=PruneLimits(confirmed=frozenset({confirmed})), drained=frozenset({OLD}))
    return make_plan("rev", wanted, held, seen, policy, FixedCauses())


def test_it_moves_where_it_is_placed_elsewhere_by_the_line_that_drains() -> None:
    made = drained(workload("chat", node="linux"), workload("other", node="linux"))

    assert [(c.action, c.reason, c.home) for c in made.changes] == [
        (Action.MOVE, "MovedAway", NEW),
        (Action.MOVE, "MovedAway", NEW),
    ]
    assert made.blocked == ()


def test_what_has_nowhere_to_go_stops_once_somebody_says_so() -> None:
    asked = drained()
    (question,) = [item for item in asked.blocked if item.token]
    assert question.token is not None

    told = drained(confirmed=question.token)

    assert asked.changes == ()
    assert asked.unchanged == {}
    assert "default/chat, default/other would stop" in question.message
    assert [(c.action, c.reason) for c in told.changes] == [
        (Action.STOP, "NodeDrained"),
        (Action.STOP, "NodeDrained"),
    ]


def test_each_drained_node_asks_for_itself() -> None:
    state = {target: TargetState(target, reachable=True) for target in (OLD, NEW)}
    elsewhere = workload("other", node="linux")
    seen = Observation(state, (instance("chat"), instance("other", of=elsewhere)))
    held = [
        Blocked(ref(n), "NodeUnavailable", "", None, None, (ref(n),)) for n in ("chat", "other")
    ]

    def plan(*confirmed: str) -> Plan:
        limits = PruneLimits(confirmed=frozenset(confirmed))
        policy = Policy(prune=limits, drained=frozenset({OLD, NEW}))
        return make_plan("rev", [], held, seen, policy, FixedCauses())

    asked = {b.target: b for b in plan().blocked if b.token}
    assert {target: [r.name for r in b.holds] for target, b in asked.items()} == {
        OLD: ["chat"],
        NEW: ["other"],
    }
    assert asked[OLD].token is not None
    told = plan(asked[OLD].token)
    assert [(c.target, c.ref.name) for c in told.changes] == [(OLD, "chat")]
    assert [b.target for b in told.blocked if b.token] == [NEW]


def test_what_is_held_by_annotation_stays_on_a_drained_node() -> None:
    made = drained(of=workload("chat", lifecycle={"hold": "true"}))

    assert "Held" in {item.reason for item in made.blocked}


def test_what_runs_on_a_node_that_is_only_unschedulable_stays() -> None:
    want = workload("chat", takes_new=False)
    other = workload("other", takes_new=False)

    made = make_plan(
        "rev", [want, other], [], observed(instance("chat", of=want)), Policy(), FixedCauses()
    )

    assert made.changes == ()
    assert made.unchanged == {OLD: 1}
    assert [(item.ref.name, item.reason) for item in made.blocked] == [
        ("other", "NodeTakesNothingNew")
    ]


def test_a_drained_node_that_does_not_answer_proves_nothing() -> None:
    seen = observed(instance("chat"))
    silent = {OLD: TargetState(OLD, reachable=False)}
    held = [Blocked(ref("chat"), "NodeUnavailable", "", None, None, (ref("chat"),))]

    made = make_plan(
        "rev",
        [],
        held,
        type(seen)(silent, seen.instances),
        Policy(drained=frozenset({OLD})),
        FixedCauses(),
    )

    assert made.changes == ()
    assert [item.reason for item in made.blocked] == ["NodeUnavailable"]
