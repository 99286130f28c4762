"""Notes of what was stopped by hand, and requests to a running agent, on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.byhand import requests
from agent.byhand.asked import ByHand
from agent.byhand.restarts import read_restarts
from agent.byhand.stopped import Stopped, read_launches, read_stopped, read_stopped_since
from agent.process.launch import Launch
from agent.process.rebuilt import workload_of
from agent.process.records import ProcessRecord, Records
from agent.state.directory import StateDir
from reconciler.api.errors import StateError
from reconciler.core.observation import TargetState
from reconciler.fleet.command import Command
from reconciler.fleet.workload import Workload
from tests.support.builders import NODE, instance, model_file, ref, workload

SEEN = TargetState(NODE, reachable=True)


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    return StateDir.open(tmp_path / "state")


def test_a_note_outlives_its_writer(state: StateDir) -> None:
    Stopped(state).add({ref("chat"): "d1"}, {})

    assert dict(Stopped(state).digests) == dict(read_stopped(state)) == {ref("chat"): "d1"}
    since = read_stopped_since(state)
    Stopped(state).add({ref("chat"): "d1", ref("late"): "d2"}, {})
    assert Stopped(state).since == read_stopped_since(state)
    assert Stopped(state).since[ref("chat")] == since[ref("chat")], "it was stopped by then"


def test_a_note_keeps_what_the_service_was_started_from_until_it_is_released(
    state: StateDir,
) -> None:
    launch = _launch(workload("chat"))
    Records(state).write(ProcessRecord(launch, wanted=True, boot="b"))
    requests.ask(state, requests.STOP, [ref("chat")])

    ByHand(state).shown(SEEN, [], [instance("chat")])

    assert read_launches(state) == {ref("chat"): launch}
    Stopped(state).add({ref("late"): "d"}, {})
    assert read_launches(state) == {ref("chat"): launch}
    Stopped(state).release([ref("chat")])
    assert read_launches(state) == {}


@pytest.mark.parametrize("launch", [None, 3, {}, {"ref": ["a"]}])
def test_a_note_of_another_version_keeps_its_service_stopped(
    state: StateDir, launch: object
) -> None:
    row = {"ref": list(ref("chat")), "inputsDigest": "d", "launch": launch}
    (state.desired / "stopped.json").write_text(json.dumps([row]))

    assert read_stopped(state) == {ref("chat"): "d"}
    assert read_launches(state) == {}


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b'[{"ref": 3}]', b'{"a": 1}', b"\xff"])
def test_a_damaged_note_is_set_aside_by_the_owner_and_left_by_who_looks(
    state: StateDir, damage: bytes
) -> None:
    file = state.desired / "stopped.json"
    file.write_bytes(damage)

    assert read_stopped(state) == {}
    assert file.read_bytes() == damage
    assert dict(Stopped(state).digests) == {}
    assert not file.exists()
    assert file.with_name("stopped.json.corrupt").read_bytes() == damage


def test_a_request_to_stop_becomes_a_note_with_the_digest_that_is_wanted_now(
    state: StateDir,
) -> None:
    running, wanted = workload("chat"), workload("chat", settings={"contextSize": 1})
    request = requests.ask(state, requests.STOP, [ref("chat")])
    by_hand = ByHand(state)

    seen = by_hand.shown(SEEN, [wanted], [instance("chat", running)])

    assert request.taken
    assert seen.keeps_stopped(wanted)
    assert read_stopped(state) == {ref("chat"): wanted.inputs_digest}


@pytest.mark.parametrize("later", [{"pid": 8}, {"pid": None}])
def test_a_request_to_restart_is_kept_until_its_process_has_ended(
    state: StateDir, later: dict[str, int | None]
) -> None:
    chat, running = workload("chat"), {"pid": 7, "port": 20_000}
    request = requests.ask(state, requests.RESTART, [ref("chat"), ref("absent")])

    first = ByHand(state).shown(SEEN, [chat], [instance("chat", **running)])
    by_hand = ByHand(state)  # another life of the agent
    second = by_hand.shown(SEEN, [chat], [instance("chat", **running)])
    kept = read_restarts(state)
    third = by_hand.shown(SEEN, [chat], [instance("chat", **running | later)])

    assert request.taken
    assert first.restarts == second.restarts == kept == {ref("chat")}
    assert third.restarts == read_restarts(state) == frozenset()


def test_a_request_to_restart_what_has_no_process_is_kept_until_it_was_tried(
    state: StateDir,
) -> None:
    chat, ended = workload("chat"), instance("chat", port=20_000)
    requests.ask(state, requests.RESTART, [ref("chat")])
    by_hand = ByHand(state)

    first = by_hand.shown(SEEN, [chat], [ended])
    by_hand.restarted(ref("chat"))
    second = by_hand.shown(SEEN, [chat], [ended])

    assert (first.restarts, second.restarts) == ({ref("chat")}, frozenset())


def test_requests_are_taken_in_their_order(state: StateDir) -> None:
    chat = workload("chat")
    for action in (requests.STOP, requests.RESTART, requests.STOP):
        requests.ask(state, action, [ref("chat")])

    seen = ByHand(state).shown(SEEN, [chat], [instance("chat", pid=7, port=20_000)])

    assert seen.keeps_stopped(chat)
    assert seen.restarts == frozenset()


def test_inputs_that_changed_and_come_back_are_no_stop_any_more(state: StateDir) -> None:
    chat, other = workload("chat"), workload("chat", settings={"contextSize": 1})
    requests.ask(state, requests.STOP, [ref("chat")])
    by_hand = ByHand(state)
    by_hand.shown(SEEN, [chat], [])

    by_hand.shown(SEEN, [other], [])

    assert not by_hand.shown(SEEN, [chat], []).keeps_stopped(chat)


def test_a_stop_is_kept_while_the_fleet_holds_the_service_and_forgotten_with_it(
    state: StateDir,
) -> None:
    chat = workload("chat")
    requests.ask(state, requests.STOP, [ref("chat")])
    by_hand = ByHand(state)
    by_hand.shown(SEEN, [chat], [])

    held = by_hand.shown(SEEN, [], [])
    by_hand.declared([])

    assert held.keeps_stopped(chat)
    assert by_hand.stopped == {}


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"action": "erase", "refs": []}', '{"refs": [[1]]}', "[" * 100_000],
    ids=["empty", "list", "erase", "no-ref", "deep"],
)
def test_a_file_that_is_no_request_is_removed_and_does_not_stop_the_others(
    state: StateDir, text: str
) -> None:
    good = requests.ask(state, requests.STOP, [ref("chat")])
    bad = good.file.with_name("1.json")
    bad.write_text(text)

    found = requests.take(state)

    assert [request.refs for request in found] == [(ref("chat"),)]
    assert not bad.exists()


def test_notes_that_cannot_be_read_just_now_are_not_forgotten(state: StateDir) -> None:
    place = state.desired / "stopped.json"
    place.mkdir(parents=True)

    with pytest.raises(StateError, match=r"stopped\.json: cannot be read"):
        ByHand(state)

    assert place.exists()


def test_a_request_that_nobody_took_can_be_withdrawn(state: StateDir) -> None:
    request = requests.ask(state, requests.STOP, [ref("chat")])
    assert not request.taken

    request.withdraw()

    assert requests.take(state) == ()


@given(
    port=st.none() | st.integers(1, 65535),
    names=st.lists(st.sampled_from("abc"), min_size=1, unique=True),
    files=st.lists(st.sampled_from(["x", "y"]), unique=True),
    sha256=st.none() | st.just("ab" * 32),
    suspended=st.booleans(),
)
def test_what_a_process_was_started_from_gives_its_workload_again(
    port: int | None, names: list[str], files: list[str], sha256: str | None, suspended: bool
) -> None:
    models = tuple(model_file(n, files=tuple(files), sha256=sha256) for n in names)
    before = workload("chat", models=models, port=port, suspended=suspended)

    after = workload_of(_launch(before), "mac")

    assert after.inputs == before.inputs
    assert after.inputs_digest == before.inputs_digest


def _launch(made: Workload) -> Launch:
    return Launch(
        ref=made.ref,
        command=Command(("x",)),
        inputs=made.inputs,
        inputs_digest=made.inputs_digest,
        render_digest="r",
        runtime=made.runtime,
        port=made.port or 1,
    )
