"""How far nodes are with a revision, in a plan and in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.agents.arrival import Arrival, Stage, arrivals
from reconciler.api import nodestate as wire
from reconciler.core.observation import (
    Drift,
    DriftKind,
    Instance,
    Observation,
    RevisionState,
    TargetState,
)
from reconciler.core.plan import Action, Blocked, Change
from reconciler.core.planner import Policy, make_plan
from reconciler.fleet.workload import Workload
from reconciler.report.instancestate import ref_state
from reconciler.report.nodestate import node_state, read_node_state
from tests.support.builders import NODE, FixedCauses, instance, observed, ref, workload

NEW, OLD = "b" * 40, "a" * 40
LASTING = frozenset({"ModelCorrupt"})


def arrive(
    *running: Instance,
    want: Workload | None = None,
    verdicts: dict[Any, tuple[str, str]] | None = None,
    changes: tuple[Change, ...] = (),
    blocked: tuple[Blocked, ...] = (),
    **state: Any,
) -> Arrival:
    state = {"revision": RevisionState(NEW, NEW)} | state
    seen = observed(*running, **state)
    told = {NODE: verdicts or {}}
    (found,) = arrivals(NEW, [want or workload()], seen, told, LASTING, changes, blocked)
    return found


def test_a_node_that_runs_by_the_revision_and_answers_is_ready() -> None:
    assert arrive(instance()) == Arrival("mac", Stage.READY)


@pytest.mark.parametrize(
    ("revision", "stage", "why", "is_final"),
    [
        (RevisionState(OLD, OLD), Stage.BEHIND, "still on aaaaaaa", False),
        (RevisionState(OLD, f"{OLD}+x.1"), Stage.BEHIND, "still on aaaaaaa+x.1", False),
        (None, Stage.BEHIND, "no revision was applied yet", False),
        (RevisionState(NEW, OLD), Stage.BEHIND, "its agent is applying it", False),
        (RevisionState(NEW, OLD, NEW, ("x:1:1: no",)), Stage.REFUSED, "x:1:1: no", True),
        (RevisionState(NEW, OLD, NEW, tuple("abcde")), Stage.REFUSED, "a; b; c; and 2 more", True),
        (RevisionState(NEW, OLD, held="older head"), Stage.HELD, "older head", True),
        (RevisionState(OLD, OLD, held="older head"), Stage.HELD, "older head", False),
        (RevisionState(OLD, OLD, OLD, ("x",)), Stage.BEHIND, "still on aaaaaaa", False),
    ],
)
def test_a_node_that_is_not_there_says_why(
    revision: RevisionState | None, stage: Stage, why: str, is_final: bool
) -> None:
    assert arrive(instance(), revision=revision) == Arrival("mac", stage, why, is_final)


def test_a_node_that_waits_for_a_person_says_for_what() -> None:
    verdicts = {ref("x"): ("NeedsConfirmation", "3 of 4 services would go: --confirm abc")}

    found = arrive(revision=RevisionState(NEW, OLD), verdicts=verdicts)

    assert (found.stage, found.is_final) == (Stage.BEHIND, True)
    assert found.why == "3 of 4 services would go: --confirm abc"


@pytest.mark.parametrize(
    ("running", "why", "is_final"),
    [
        ([], "default/chat is not there yet", False),
        (
            [instance(of=workload(settings={"contextSize": 1}))],
            "default/chat still runs as declared before",
            False,
        ),
        (
            [instance(ready=False, reason="Downloading", message="https://x")],
            "default/chat Downloading",
            False,
        ),
        (
            [instance(ready=False, reason="ModelCorrupt", message="not GGUF")],
            "default/chat ModelCorrupt: not GGUF",
            True,
        ),
    ],
)
def test_a_service_that_is_not_ready_holds_its_node_up(
    running: list[Instance], why: str, is_final: bool
) -> None:
    assert arrive(*running) == Arrival("mac", Stage.WAITING, why, is_final)


def test_a_service_that_the_agent_refuses_is_said_in_its_words() -> None:
    found = arrive(instance(), verdicts={ref(): ("MemoryFits", "needs 3 GiB")})

    assert found == Arrival("mac", Stage.WAITING, "default/chat MemoryFits: needs 3 GiB", True)


@pytest.mark.parametrize(
    "change",
    [
        {"want": workload(suspended=True)},
        {"stopped": {ref(): workload().inputs_digest}},
        {"want": workload(node="elsewhere")},
    ],
)
def test_what_should_not_run_here_now_holds_nothing_up(change: dict[str, Any]) -> None:
    assert arrive(**change).stage is Stage.READY


@pytest.mark.parametrize(
    ("action", "home", "why"),
    [
        (Action.DELETE, None, "still there"),
        (Action.MOVE, "node/linux", "still there until it answers on linux"),
        (Action.MOVE, "cluster/prod", "still there until it answers on cluster prod"),
    ],
)
def test_what_is_to_go_holds_its_node_up_until_it_is_gone(
    action: Action, home: str | None, why: str
) -> None:
    going = Change(action, NODE, ref("old"), "Removed", None, home=home)

    found = arrive(instance(), changes=(going,))

    assert found == Arrival("mac", Stage.WAITING, f"default/old is {why}")


@pytest.mark.parametrize(
    ("reason", "is_final"), [("StoppedByHand", True), ("MemoryFits", True), ("MoveStuck", False)]
)
def test_a_copy_whose_move_is_blocked_keeps_its_node_from_being_ready(
    reason: str, *, is_final: bool
) -> None:
    elsewhere = workload(node="linux")
    stuck = Blocked(ref(), reason, "it stays", None, NODE, home="node/linux")

    found = arrive(instance(), want=elsewhere, blocked=(stuck,))
    other = arrive(instance(), want=elsewhere, blocked=(replace(stuck, target="node/linux"),))

    why = f"default/chat is kept as it is: {reason}: it stays"
    assert found == Arrival("mac", Stage.WAITING, why, is_final)
    assert other.stage is Stage.READY


def test_a_target_is_waited_for_while_something_of_what_was_taken_away_is_left() -> None:
    found = arrive(instance(), leaving={ref("old"): "still there: pod old-x"})

    assert found == Arrival("mac", Stage.WAITING, "default/old is still there: pod old-x")


def test_a_node_that_does_not_answer_is_not_there() -> None:
    assert arrive(reachable=False, message="gone") == Arrival("mac", Stage.UNREACHABLE, "gone")


# -- plans made from afar


def refusing(fetched: str, reason: str = "MemoryFits") -> Observation:
    """The node as its agent answers, which has fetched a revision and refuses the service."""
    blocked = wire.BlockedState(ref=ref_state(ref()), reason=reason, message="needs 3 GiB")
    state = TargetState(NODE, True, 1.0, revision=RevisionState(fetched))
    answer = node_state(state, (), agent_version="1", blocked=[blocked])
    return Observation({NODE: read_node_state(answer)[0]}, ())


def plan_of(seen: Observation) -> Any:
    return make_plan(NEW, [workload()], [], seen, Policy(), FixedCauses())


def test_what_an_agent_refused_of_this_revision_is_blocked_in_the_plan_too() -> None:
    plan = plan_of(refusing(NEW))

    assert plan.changes == ()
    assert [(b.ref, b.reason, b.message) for b in plan.blocked] == [
        (ref(), "MemoryFits", "needs 3 GiB")
    ]


def test_what_an_agent_refused_of_another_revision_says_nothing_of_this_one() -> None:
    plan = plan_of(refusing(OLD))

    assert (plan.changes, plan.blocked) == (plan_of(observed()).changes, ())


def test_a_newer_agents_reason_is_shown_where_the_plan_has_no_word_for_it() -> None:
    plan = plan_of(refusing(NEW, "TooHot"))

    assert [(c.action, c.message) for c in plan.changes] == [(Action.CREATE, "TooHot: needs 3 GiB")]
    assert plan.blocked == ()


def test_an_older_agents_name_for_a_reason_blocks_the_plan_as_todays_does() -> None:
    plan = plan_of(refusing(NEW, "PlacementNotLocked"))

    assert [b.reason for b in plan.blocked] == ["PlacementNotStated"]
    assert plan.changes == ()


def test_without_renders_an_upgrade_is_deferred_only_if_the_agent_says_so() -> None:
    upgraded = Drift(DriftKind.DEFERRED, "llama-server was upgraded", since=5.0)

    silent = plan_of(observed(instance()))
    told = plan_of(observed(instance(drifts=(upgraded,))))

    assert silent.changes == ()
    (change,) = told.changes
    assert (change.action, change.message, change.since) == (
        Action.DEFERRED,
        "llama-server was upgraded",
        5.0,
    )
