"""What a node believes of the successor of a service that leaves it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.node.handover import Handover, read_moves
from reconciler.api import nodestate as wire
from reconciler.core.observation import Successor
from reconciler.fleet.fleet import Fleet
from reconciler.report.instancestate import ref_state
from tests.support.agents import FakeAgent, answers, said_by, sends
from tests.support.builders import instance, workload
from tests.support.fleets import load_folder, node, write_fleet
from tests.support.owner import LookedAtClock
from tests.support.wait import wait_for

CHAT = instance("chat", ready=True)
NOBODY = "http://192.0.2.1:9090"  # RFC 5737
ONCE_READY = "`fleet-agent stop default/chat` here ends this copy once it is ready there"


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


def fleet(folder: Path, url: str | None) -> Fleet:
    found = load_folder(
        write_fleet(folder / "fleet", {"gpu.yaml": node("gpu", agent={"url": url} if url else {})})
    )
    assert found.fleet is not None
    return found.fleet


def successor(of: Handover, home: str = "node/gpu", handover: float = 600.0) -> Successor:
    """What is known now of the service that moves there."""
    kind, _, name = home.partition("/")
    place = {"node": name} if kind == "node" else {"cluster": name, "node": "edge"}
    want = workload("chat", lifecycle={"rollout.handover": handover}, **place)
    return of.successors({CHAT.ref: want})[CHAT.ref]


def test_a_successor_is_ready_while_its_agent_says_so(
    tmp_path: Path, here: Handover, peer: FakeAgent
) -> None:
    here.follow(fleet(tmp_path, peer.url))
    wait_for(lambda: successor(here).ready)

    peer.state = said_by("gpu", instance("chat", ready=False, reason="Loading"))
    wait_for(lambda: not successor(here).ready)

    assert successor(here).message == "there it is Loading"


def test_what_a_successors_agent_refuses_is_known_with_its_reason(
    tmp_path: Path, here: Handover, peer: FakeAgent
) -> None:
    refused = {"ref": ref_state(CHAT.ref), "reason": "MemoryFits", "message": "3 GiB"}
    peer.state = said_by("gpu") | {
        "blocked": [wire.BlockedState(**refused).model_dump(mode="json", by_alias=True)]
    }
    here.follow(fleet(tmp_path, peer.url))

    wait_for(lambda: successor(here).refusal == "MemoryFits")

    assert successor(here).message == "3 GiB"


def test_a_successor_that_its_agent_does_not_know_yet_is_not_refused(
    tmp_path: Path, here: Handover, peer: FakeAgent
) -> None:
    peer.state = said_by("gpu")
    here.follow(fleet(tmp_path, peer.url))

    wait_for(lambda: successor(here).message == "it is not there yet")

    assert successor(here).refusal == ""


@pytest.mark.parametrize(
    ("node_of_answer", "age_s", "why"),
    [
        ("gpu", 1e6, "has not looked at it for 10000"),
        ("mac", 0.0, "answers for node mac, not for gpu"),
    ],
    ids=["an old answer", "an answer for a different node"],
)
def test_an_answer_that_proves_nothing_makes_no_successor_ready(
    tmp_path: Path, here: Handover, peer: FakeAgent, node_of_answer: str, age_s: float, why: str
) -> None:
    peer.state = said_by(node_of_answer, CHAT, at=time.time() - age_s)
    here.follow(fleet(tmp_path, peer.url))

    wait_for(lambda: why in successor(here).message)

    assert (successor(here).ready, successor(here).refusal) == (False, "NotReachable")


def test_an_answer_that_nobody_can_read_ends_no_question(
    tmp_path: Path, here: Handover, peer: FakeAgent
) -> None:
    peer.behaves = sends(b'{"error":' * 100_000, 500)
    here.follow(fleet(tmp_path, peer.url))
    wait_for(lambda: "answers 500" in successor(here).message)

    peer.behaves = answers

    wait_for(lambda: successor(here).ready)


@pytest.mark.parametrize(
    ("home", "url", "why"),
    [
        ("node/gpu", NOBODY, "another program on the way could answer for it"),
        ("node/gpu", None, f"its FleetNode states no spec.agent.url. State one, or {ONCE_READY}"),
        ("cluster/gpu", None, f"cannot ask a cluster. {ONCE_READY}"),
    ],
    ids=["plain http", "no address", "a cluster"],
)
def test_a_successor_that_cannot_be_asked_is_unknown_with_the_way_out(
    tmp_path: Path, here: Handover, home: str, url: str | None, why: str
) -> None:
    here.follow(fleet(tmp_path, url))

    found = successor(here, home)

    assert (found.ready, found.refusal) == (False, "SuccessorUnknown")
    assert why in found.message


def test_a_cluster_is_not_confused_with_a_node_of_its_name(
    tmp_path: Path, here: Handover, peer: FakeAgent
) -> None:
    here.follow(fleet(tmp_path, peer.url))

    assert successor(here, "cluster/gpu").refusal == "SuccessorUnknown"
    assert peer.requests == []


def test_a_move_is_overdue_after_its_handover_also_for_our_next_life(tmp_path: Path) -> None:
    file, clock = tmp_path / "moves.json", LookedAtClock()
    first = Handover(file, clock=clock)
    first.follow(fleet(tmp_path, None))

    begun = successor(first)
    next_life = Handover(file, clock=clock)
    clock.now = 599.0
    in_time = successor(next_life)
    clock.now = 600.0
    over = [successor(each) for each in (first, next_life)]
    other_home = successor(first, "cluster/prod")
    first.successors({})
    again = successor(first)

    assert [s.is_overdue for s in (begun, in_time, *over)] == [False, False, True, True]
    assert not any(s.ready for s in over)
    assert [s.is_overdue for s in (other_home, again)] == [False, False], "each begins anew"


def test_who_only_reads_learns_what_the_agent_noted_last_and_notes_nothing(
    tmp_path: Path, here: Handover, peer: FakeAgent
) -> None:
    here.follow(fleet(tmp_path, peer.url))
    wait_for(lambda: successor(here).ready)
    peer.state = said_by("gpu", instance("chat", ready=False, reason="Loading"))
    wait_for(lambda: successor(here).message == "there it is Loading")
    noted, reader = here.file.read_bytes(), Handover(here.file)
    moving = {CHAT.ref: workload("chat", node="gpu", lifecycle={"rollout.handover": 600.0})}
    reader.follow(fleet(tmp_path, peer.url))
    asked = len(peer.requests)
    here.close()

    found = reader.noted(moving)

    assert found[CHAT.ref].message == "there it is Loading"
    assert reader.noted({}) == {}
    assert here.file.read_bytes() == noted
    assert len(peer.requests) - asked <= 1, "by the agent, which was about to ask"


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b'{"default/chat": {"home": "gpu", "since": 1}}']
)
def test_a_damaged_file_of_moves_begins_each_wait_again(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "moves.json"
    file.write_bytes(text)

    assert read_moves(file) == {}
    assert not successor(Handover(file)).ready
