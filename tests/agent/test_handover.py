"""What a node believes before it stops a service that moves away."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.node.handover import Handover
from reconciler.core.plan import Action, Change
from reconciler.fleet.fleet import Fleet
from tests.support.agents import FakeAgent, answers, said_by, sends
from tests.support.builders import instance
from tests.support.fleets import load_folder, node, write_fleet
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


def fleet(folder: Path, url: str) -> Fleet:
    found = load_folder(
        write_fleet(folder / "fleet", {"gpu.yaml": node("gpu", agent={"url": url})})
    )
    assert found.fleet is not None
    return found.fleet


def leaving() -> Change:
    return Change(Action.MOVE, "node/mac", CHAT.ref, "Moved", None, home="node/gpu")
