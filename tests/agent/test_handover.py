"""What a node believes before it stops a service that moves away."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.node.handover import Handover
from reconciler.core.observation import Instance
from reconciler.core.plan import Action, Change
from reconciler.fleet.fleet import Fleet
from tests.support.agents import FakeAgent, answers, said_by, sends
from tests.support.builders import instance, workload
from tests.support.fleets import load_folder, node, write_fleet
from tests.support.owner import LookedAtClock
from tests.support.wait import wait_for

CHAT = instance("chat", ready=True)


@pytest.fixture
def peer() -> Iterator[FakeAgent]:
    with FakeAgent("gpu") as agent:
        agent.state = said_by("gpu", CHAT)
        yield agent


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Handover]:
    handover = Handover(tmp_path / "moves.json", again_s=0.01)
    yield handover
    handover.close()


def test_a_copy_goes_once_its_successor_answers(
    tmp_path: Path, here: Handover, peer: FakeAgent
) -> None:
    here.follow(fleet(tmp_path, peer.url))

    wait_for(lambda: here.holds(leaving()) is None)


def test_a_successors_agent_that_hangs_behind_an_old_look_is_not_believed(
    tmp_path: Path, here: Handover, peer: FakeAgent
) -> None:
    peer.state = said_by("gpu", CHAT, at=time.time() - 3600)
    here.follow(fleet(tmp_path, peer.url))

    wait_for(lambda: "has not looked at it for 36" in (here.holds(leaving()) or ""))


def test_another_nodes_answer_is_not_believed(
    tmp_path: Path, here: Handover, peer: FakeAgent
) -> None:
    peer.state = said_by("mac", CHAT)
    here.follow(fleet(tmp_path, peer.url))

    wait_for(lambda: "answers for node mac, not for gpu" in (here.holds(leaving()) or ""))


def test_who_could_be_anybody_is_not_asked(tmp_path: Path, here: Handover) -> None:
    here.follow(fleet(tmp_path, "http://192.0.2.1:9090"))  # nobody's address (RFC 5737)

    wait_for(lambda: "anybody on the way could answer" in (here.holds(leaving()) or ""))


def test_an_answer_that_nobody_can_read_ends_no_question(
    tmp_path: Path, here: Handover, peer: FakeAgent
) -> None:
    peer.behaves = sends(b'{"error":' * 100_000, 500)
    here.follow(fleet(tmp_path, peer.url))
    wait_for(lambda: "answers 500" in (here.holds(leaving()) or ""))

    peer.behaves = answers

    wait_for(lambda: here.holds(leaving()) is None)


def test_a_move_that_was_taken_back_or_whose_copy_is_gone_is_over(
    tmp_path: Path, here: Handover
) -> None:
    here.follow(fleet(tmp_path, "http://192.0.2.1:9090"))

    seen = []
    for wanted, running in ((set(), {CHAT.ref}), ({CHAT.ref}, {CHAT.ref}), (set(), set())):
        here.holds(leaving())
        here.stays(wanted, running)
        seen.append(dict(here.leaving))

    assert seen == [{CHAT.ref: "gpu"}, {}, {}]


@pytest.mark.parametrize(
    ("home", "said"),
    [
        (
            "cluster/prod",
            "cluster prod answers for it, at most until {} (an agent asks no cluster)",
        ),
        (
            "node/gpu",
            "node gpu answers for it, at most until {} (its FleetNode states no spec.agent.url, so"
            " it cannot be asked): see to the agent there, or take the move back",
        ),
    ],
)
def test_who_cannot_be_asked_is_waited_for_until_the_time_is_over_also_by_our_next_life(
    tmp_path: Path, home: str, said: str
) -> None:
    file, clock = tmp_path / "moves.json", LookedAtClock()
    first = Handover(file, clock=clock)
    first.follow(fleet(tmp_path, None))
    move = leaving(home, handover=600.0)
    ends = time.strftime("%H:%M:%S", time.localtime(clock.time() + 600))

    why = first.holds(move)
    next_life = Handover(file, clock=clock)
    next_life.follow(fleet(tmp_path, None))
    clock.now = 599.0
    still = next_life.holds(move)
    clock.now = 600.0
    over = first.holds(move), next_life.holds(move)
    first.over(CHAT.ref)
    clock.now = 601.0
    again = first.holds(move)
    for each in (first, next_life):
        each.close()

    assert why == f"stays until {said.format(ends)}"
    assert still is not None
    assert over == (None, None)
    assert again is not None, "another move begins anew"


@pytest.mark.parametrize(
    ("there", "why"),
    [
        ((), "it is not there yet"),
        ((replace(CHAT, ready=False, reason="Loading"),), "there it is Loading"),
    ],
)
def test_a_successor_that_does_not_answer_yet_is_said(
    tmp_path: Path, here: Handover, peer: FakeAgent, there: tuple[Instance, ...], why: str
) -> None:
    peer.state = said_by("gpu", *there)
    here.follow(fleet(tmp_path, peer.url))

    wait_for(lambda: f" ({why})" in (here.holds(leaving()) or ""))


def fleet(folder: Path, url: str | None) -> Fleet:
    found = load_folder(
        write_fleet(folder / "fleet", {"gpu.yaml": node("gpu", agent={"url": url} if url else {})})
    )
    assert found.fleet is not None
    return found.fleet


def leaving(home: str = "node/gpu", **lifecycle: float) -> Change:
    stated = {f"rollout.{name}": value for name, value in lifecycle.items()}
    desired = replace(workload("chat"), lifecycle=stated)
    return Change(Action.MOVE, "node/mac", CHAT.ref, "Moved", None, desired=desired, home=home)
