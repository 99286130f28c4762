"""A service that moves to another node: what the plan says, and when the copy here goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.node.handover import Handover
from reconciler.api.meta import ObjectRef
from reconciler.core.observation import Instance, Observation, TargetState
from reconciler.core.plan import Action, Change, Plan
from reconciler.core.planner import Policy, make_plan
from reconciler.fleet.fleet import Fleet
from reconciler.fleet.workload import Workload
from tests.support.agents import FakeAgent, said_by, sends
from tests.support.builders import (
    GIB,
    FixedCauses,
    instance,
    need,
    observed,
    ref,
    workload,
)
from tests.support.fleets import load_texts, node
from tests.support.owner import MovedClock
from tests.support.wait import wait_for

ELSEWHERE = workload(
    "chat", node="linux", needs=need(8 * GIB), lifecycle={"rollout.handover": 60.0}
)


def plan(*desired: Workload, cached: bool = True) -> Plan:
    """What node/mac does, where chat runs in 8 of 10 GiB, for what it is to run and others are."""
    models = {model.sha256 for w in desired for model in w.models if model.sha256 and cached}
    now = observed(instance("chat", needs=need(8 * GIB)), cached=frozenset(models))
    return make_plan("rev", [ELSEWHERE, *desired], [], now, Policy(), FixedCauses())


def test_a_move_comes_last_and_keeps_its_memory_until_then() -> None:
    small = workload("small", needs=need(GIB))

    made = plan(small)

    assert [(c.ref.name, c.action, c.reason) for c in made.changes] == [
        ("small", Action.CREATE, "Added"),
        ("chat", Action.MOVE, "MovedAway"),
    ]
    assert made.changes[0].impact.memory[0].peak_bytes == 9 * GIB


def test_a_move_goes_at_once_when_its_memory_is_needed() -> None:
    large = workload("large", needs=need(5 * GIB))

    made = plan(large)

    assert [(c.ref.name, c.reason) for c in made.changes] == [
        ("chat", "MovedAtOnce"),
        ("large", "Added"),
    ]
    assert [c.impact.order for c in made.changes] == [0, 1]
    assert made.changes[1].impact.memory[0].after_bytes == 5 * GIB


def test_a_move_stays_while_the_one_that_needs_its_memory_still_lacks_its_model() -> None:
    large = workload("large", needs=need(5 * GIB))

    made = plan(large, cached=False)

    assert [(c.ref.name, c.reason) for c in made.changes] == [("chat", "MovedAway")]
    assert [(b.ref.name, b.reason) for b in made.blocked] == [("large", "MemoryFits")]


def test_a_move_that_would_not_make_enough_room_stays() -> None:
    huge = workload("huge", needs=need(11 * GIB))

    made = plan(huge)

    assert [(c.ref.name, c.reason) for c in made.changes] == [("chat", "MovedAway")]
    assert [(b.ref.name, b.reason) for b in made.blocked] == [("huge", "MemoryFits")]


def test_seen_from_afar_a_copy_beside_its_successor_still_moves() -> None:
    old = instance("chat", of=workload("chat", lifecycle={"prune": "disabled"}))
    new = replace(successor(ready=False), target="node/linux")
    linux = TargetState("node/linux", reachable=True)
    seen = Observation({**observed().targets, "node/linux": linux}, (old, new))

    made = make_plan("rev", [ELSEWHERE], [], seen, Policy(incomplete="a file"), FixedCauses())

    assert [(c.target, c.reason) for c in made.changes] == [("node/mac", "MovedAway")]
    assert made.blocked == ()


def test_a_service_that_is_suspended_while_it_moves_stops_here_too() -> None:
    suspended = replace(ELSEWHERE, suspended=True)
    there = instance("chat", needs=need(8 * GIB))
    small = workload("small", needs=need(5 * GIB))

    made = make_plan("rev", [suspended, small], [], observed(there), Policy(), FixedCauses())

    assert [(c.ref.name, c.action, c.reason) for c in made.changes] == [
        ("chat", Action.STOP, "Suspended"),
        ("small", Action.CREATE, "Added"),
    ]


def a_move() -> Change:
    (change,) = plan().changes
    return change


def fleet_with(url: str | None) -> Fleet:
    agent = {} if url is None else {"url": url}
    loaded = load_texts(node("mac", agent={}), node("linux", agent=agent))
    assert loaded.fleet is not None
    return loaded.fleet


def successor(ready: bool) -> Instance:
    return instance("chat", of=ELSEWHERE, ready=ready, reason="Ready" if ready else "Loading")


@pytest.fixture
def linux() -> Iterator[FakeAgent]:
    """The other node's agent, where chat is not ready yet."""
    with FakeAgent("linux") as agent:
        agent.state = said_by("linux", successor(ready=False))
        yield agent


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


def handover(tmp_path: Path, clock: MovedClock, url: str | None = None) -> Handover:
    made = Handover(tmp_path / "moves.json", clock=clock, again_s=0.01)
    made.follow(fleet_with(url))
    return made


def test_the_copy_here_stays_until_its_successor_answers(
    tmp_path: Path, clock: MovedClock, linux: FakeAgent
) -> None:
    moving = handover(tmp_path, clock, linux.url)

    before = moving.holds(a_move())
    linux.state = said_by("linux", successor(ready=True))
    wait_for(lambda: moving.holds(a_move()) is None)
    moving.close()

    assert before is not None
    assert before.startswith("stays until node linux answers for it, at most until ")


def test_it_says_what_it_waits_for(tmp_path: Path, clock: MovedClock, linux: FakeAgent) -> None:
    moving = handover(tmp_path, clock, linux.url)

    wait_for(lambda: "there it is Loading" in (moving.holds(a_move()) or ""))
    moving.close()


def test_a_node_that_is_down_is_waited_for(
    tmp_path: Path, clock: MovedClock, linux: FakeAgent
) -> None:
    linux.behaves = sends(b"", 500)
    moving = handover(tmp_path, clock, linux.url)

    wait_for(lambda: "it answers 500" in (moving.holds(a_move()) or ""))
    moving.close()


def test_it_goes_when_the_handover_is_over(tmp_path: Path, clock: MovedClock) -> None:
    moving = handover(tmp_path, clock)
    before = moving.holds(a_move())

    clock.passed_s = 61.0

    assert before is not None
    assert "states no spec.agent.url" in before
    assert moving.holds(a_move()) is None


def test_a_cluster_is_not_asked_and_not_taken_for_a_node_of_its_name(
    tmp_path: Path, clock: MovedClock, linux: FakeAgent
) -> None:
    linux.state = said_by("linux", successor(ready=True))
    moving = handover(tmp_path, clock, linux.url)
    away = replace(a_move(), home="cluster/linux")

    why = moving.holds(away)
    clock.passed_s = 61.0
    moving.close()

    assert why is not None
    assert why.startswith("stays until cluster linux answers for it, at most until ")
    assert why.endswith("(an agent asks no cluster)")
    assert moving.holds(away) is None
    assert linux.requests == []


def test_a_restart_of_ours_does_not_begin_the_wait_again(tmp_path: Path, clock: MovedClock) -> None:
    handover(tmp_path, clock).holds(a_move())
    clock.passed_s = 40.0
    again = handover(tmp_path, clock)
    in_the_middle = again.holds(a_move())

    clock.passed_s = 61.0

    assert in_the_middle is not None
    assert again.holds(a_move()) is None


def test_a_restart_of_ours_begins_no_wait_again_where_several_move(
    tmp_path: Path, clock: MovedClock
) -> None:
    both = [a_move(), replace(a_move(), ref=ref("code"))]
    before = handover(tmp_path, clock)
    for move in both:
        before.holds(move)
    clock.passed_s = 40.0
    again = handover(tmp_path, clock)
    again.stays([], [move.ref for move in both])
    in_the_middle = [again.holds(move) for move in both]

    clock.passed_s = 61.0

    assert None not in in_the_middle
    assert [again.holds(move) for move in both] == [None, None]


@pytest.mark.parametrize(
    ("wanted", "running"), [([ref("chat")], [ref("chat")]), ([], [])], ids=["taken back", "gone"]
)
def test_a_wait_that_ended_while_the_agent_did_not_run_is_forgotten(
    tmp_path: Path, clock: MovedClock, wanted: list[ObjectRef], running: list[ObjectRef]
) -> None:
    handover(tmp_path, clock).holds(a_move())
    clock.passed_s = 61.0

    again = handover(tmp_path, clock)
    again.stays(wanted, running)

    assert again.holds(a_move()) is not None


def test_a_move_that_was_taken_back_begins_anew(tmp_path: Path, clock: MovedClock) -> None:
    moving = handover(tmp_path, clock)
    moving.holds(a_move())
    clock.passed_s = 40.0

    moving.over(ref("chat"))
    moving.holds(a_move())
    clock.passed_s = 61.0

    assert moving.leaving == {ref("chat"): "linux"}
    assert moving.holds(a_move()) is not None
