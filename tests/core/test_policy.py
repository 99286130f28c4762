"""What the Fleet's policy, and what is known of the revision before, make of a step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.core.observation import (
    Drift,
    DriftKind,
    Instance,
    Observation,
    ObservedPool,
    TargetState,
)
from reconciler.core.plan import Action, Blocked, Change, Impact, Plan, Restart
from reconciler.core.planner import Policy, make_plan
from reconciler.core.prune import Before, PruneLimits, limits_of
from reconciler.fleet.workload import Workload
from tests.support.builders import (
    GIB,
    NODE,
    FixedCauses,
    instance,
    need,
    observed,
    ref,
    workload,
)


def plan(wanted: list[Workload], seen: Observation, policy: Policy, *blocked: Blocked) -> Plan:
    return make_plan("rev", wanted, blocked, seen, policy, FixedCauses())


def drifted(kind: DriftKind, **state: Any) -> Instance:
    return instance("chat", pid=7, drifts=(Drift(kind, "another argv", 5.0),), **state)


_CHAT = workload("chat")
_REPLACED = (Action.REPLACE, "SettingsChanged", Restart.RESTART)


@pytest.mark.parametrize(
    ("want", "have", "enforced", "reported"),
    [
        (
            _CHAT,
            drifted(DriftKind.RESTART),
            (Action.DRIFT, "Drifted", Restart.RESTART),
            (Action.DRIFT, "DriftReported", Restart.NONE),
        ),
        (_CHAT, drifted(DriftKind.COSMETIC), *[(Action.DRIFT, "DriftShown", Restart.NONE)] * 2),
        (
            _CHAT,
            drifted(DriftKind.DEFERRED),
            *[(Action.DEFERRED, "RenderChanged", Restart.NONE)] * 2,
        ),
        (
            _CHAT,
            instance("chat", gone=True),
            *[(Action.DRIFT, "ProcessGone", Restart.RESTART)] * 2,
        ),
        (workload("chat", settings={"contextSize": 1}), instance("chat"), *[_REPLACED] * 2),
        (None, instance("chat"), *[(Action.DELETE, "Removed", Restart.NONE)] * 2),
    ],
    ids=["drift", "shown", "deferred", "ended", "declared", "removed"],
)
def test_only_a_process_that_runs_otherwise_than_declared_is_left_where_drift_is_reported(
    want: Workload | None,
    have: Instance,
    enforced: tuple[Action, str, Restart],
    reported: tuple[Action, str, Restart],
) -> None:
    for is_enforced, expected in ((True, enforced), (False, reported)):
        made = plan([want] if want else [], observed(have), Policy(drift_enforced=is_enforced))

        (change,) = made.changes
        assert (change.action, change.reason, change.impact.restart) == expected
        if change.reason == "DriftReported":
            assert change.impact == Impact()


@pytest.mark.parametrize(
    ("policy", "target", "held"),
    [
        ({}, {}, ""),
        ({"incomplete": "a file is broken"}, {}, "a file is broken"),
        ({}, {"incomplete": "not all is seen here"}, "not all is seen here"),
    ],
)
def test_where_absence_proves_nothing_nothing_is_removed_and_everything_else_is_done(
    policy: dict[str, str], target: dict[str, str], held: str
) -> None:
    seen = observed(instance("gone"), instance("chat"), **target)

    made = plan([workload("chat", settings={"contextSize": 1})], seen, Policy(**policy))

    expected = {"chat": Action.REPLACE} if held else {"chat": Action.REPLACE, "gone": Action.DELETE}
    assert {c.ref.name: c.action for c in made.changes} == expected
    assert [(b.ref.name, b.reason, b.message) for b in made.blocked] == (
        [("gone", "RevisionIncomplete", held)] if held else []
    )


@pytest.mark.parametrize(
    ("before", "own", "expected"),
    [
        (None, (10, 0.3), (10, 0.3, False)),
        ((10, 0.3), (10, 0.3), (10, 0.3, False)),
        ((5, 0.3), (10, 0.3), (5, 0.3, True)),
        ((10, 0.1), (10, 0.3), (10, 0.1, True)),
        ((20, 0.9), (10, 0.3), (10, 0.3, False)),
        ((20, 0.1), (10, 0.3), (10, 0.1, True)),
    ],
)
def test_the_lower_limits_count_and_a_question_says_when_they_are_those_of_before(
    before: tuple[int, float] | None, own: tuple[int, float], expected: tuple[int, float, bool]
) -> None:
    limits = limits_of(*own, Before(limits=before), (), {})

    assert (limits.max_count, limits.max_share, limits.are_lower) == expected
    asked = plan([], observed(*(instance(f"s{n}") for n in range(25))), Policy(prune=limits))
    (question,) = asked.blocked
    assert question.message.startswith(
        f"25 of 25 services of this fleet would stop; the limits are {expected[0]} services, and"
        f" {expected[1]:.0%} of all where 4 or more would go"
    )
    said = "as before: higher ones count once this is done"
    assert (said in question.message) is expected[2]


@pytest.mark.parametrize(
    ("count", "of", "limits", "is_asked"),
    [
        (10, 100, {}, False),
        (11, 100, {}, True),
        (3, 4, {}, False),  # few are never a large share
        (1, 1, {}, False),
        (2, 2, {"max_share": 1.0}, True),  # a node with several is left with none
        (4, 12, {"max_share": 0.33}, True),
        (4, 16, {"max_share": 0.25}, False),  # as much as the limit
        (1, 9, {"max_count": 0}, True),
    ],
)
def test_removals_are_asked_for_beyond_a_count_or_a_share_and_not_at_it(
    count: int, of: int, limits: dict[str, Any], is_asked: bool
) -> None:
    running = [instance(f"s{n:02}") for n in range(of)]
    kept = [workload(f"s{n:02}") for n in range(count, of)]

    made = plan(kept, observed(*running), Policy(prune=PruneLimits(**limits)))

    assert len(made.changes) == (0 if is_asked else count)
    assert [b.reason for b in made.blocked] == (["NeedsConfirmation"] if is_asked else [])


_THEIRS = PruneLimits(foreign={"default/chat": "/srv/other"})


@pytest.mark.parametrize(
    ("want", "have", "is_asked"),
    [
        (None, instance("chat"), True),
        (workload("chat", settings={"contextSize": 1}), instance("chat"), True),
        (workload("chat", suspended=True), instance("chat"), True),
        (workload("chat", node="other"), instance("chat"), True),
        (workload("chat", lifecycle={}), instance("chat"), False),  # its process lives on
        (_CHAT, instance("chat", gone=True), False),  # it has ended by itself
        (_CHAT, drifted(DriftKind.COSMETIC), False),
    ],
    ids=["removed", "replaced", "suspended", "moved", "noted", "ended", "shown"],
)
def test_what_ends_a_process_of_another_fleet_is_asked_for_and_nothing_else_is(
    want: Workload | None, have: Instance, is_asked: bool
) -> None:
    made = plan([want] if want else [], observed(have), Policy(prune=_THEIRS))

    assert [b.reason for b in made.blocked] == (["NeedsConfirmation"] if is_asked else [])
    assert len(made.changes) == (0 if is_asked else 1)
    if is_asked and want is not None and not want.suspended and want.node == "mac":
        assert "1 of 1 services would stop or be replaced; they were" in made.blocked[0].message


@pytest.mark.parametrize(
    ("home", "expected"),
    [
        (workload("chat", node="linux"), (Action.MOVE, "MovedAway", "services/mac.yaml", 7)),
        (
            workload("chat", node="linux", suspended=True),
            (Action.STOP, "Suspended", "services/chat.yaml", 7),
        ),
    ],
)
def test_what_leaves_a_drained_node_cites_the_drain_unless_it_would_have_stopped_anyway(
    home: Workload, expected: tuple[Action, str, str, int]
) -> None:
    made = plan([home], observed(instance("chat")), Policy(drained=frozenset({NODE})))

    (change,) = made.changes
    assert change.source is not None
    place = (change.source.file, change.source.line)
    assert (change.action, change.reason, *place) == expected


def test_what_is_suspended_and_does_not_run_is_no_change_and_counted_nowhere() -> None:
    made = plan([workload("chat", suspended=True)], observed(), Policy())

    assert (made.changes, made.blocked, sum(made.unchanged.values())) == ((), (), 0)


@pytest.mark.parametrize(
    ("running", "asked", "is_admitted"),
    [
        (10 * GIB, 0, True),
        (11 * GIB, 0, True),  # on a node that holds too much what takes nothing may start
        (10 * GIB - 1, 1, True),
        (10 * GIB, 1, False),
    ],
)
def test_a_service_is_admitted_to_the_last_byte_and_one_that_takes_nothing_always(
    running: int, asked: int, is_admitted: bool
) -> None:
    old, late = workload("old", needs=need(running)), workload("late", needs=need(asked))

    made = plan([old, late], observed(instance("old", of=old)), Policy())

    assert [c.ref.name for c in made.changes] == (["late"] if is_admitted else [])
    assert [b.reason for b in made.blocked] == ([] if is_admitted else ["MemoryFits"])


@pytest.mark.parametrize(
    ("others", "asked", "is_admitted"),
    [(10 * GIB, 0, True), (11 * GIB, 0, True), (10 * GIB - 1, 1, True), (10 * GIB, 1, False)],
)
def test_the_same_holds_on_a_node_where_nothing_of_ours_runs_beside_others(
    others: int, asked: int, is_admitted: bool
) -> None:
    pool = ObservedPool("host", 16 * GIB, 10 * GIB, others)

    made = plan([workload("late", needs=need(asked))], observed(pools=(pool,)), Policy())

    assert [c.ref.name for c in made.changes] == (["late"] if is_admitted else [])


def test_of_what_is_not_said_of_an_instance_nothing_is_taken_for_granted() -> None:
    have = Instance(ref(), NODE, "llama-server", {}, "", None, None, ready=True, reason="Ready")

    assert (have.gone, have.adopted, have.was_started, have.drifts) == (False, False, False, ())
    assert replace(have, port=0).was_started
    assert TargetState(NODE, reachable=True).obstacle_of(_CHAT) is None
    assert not TargetState(NODE, reachable=True).keeps_stopped(_CHAT)
    quiet = Change(Action.CREATE, NODE, ref(), "Added", None)
    assert (quiet.is_shown_only, quiet.is_quiet, quiet.impact.waits) == (False, False, False)
