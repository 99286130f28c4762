"""What a node makes of a change while the model that it needs is on its way."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.byhand import requests
from agent.models.expected import ExpectedFile, read_noted
from agent.node.local import LocalAgent
from agent.node.settings import Settings
from agent.process.launch import Launch
from agent.process.records import ProcessRecord, Records
from agent.state.directory import StateDir
from reconciler.api.fleetnode import FleetNode
from reconciler.api.meta import ObjectRef
from reconciler.core.plan import Action, Blocked, Change, Plan
from reconciler.core.target import Result
from reconciler.fleet.command import Command
from tests.support.builders import NODE, instance, model_file, ref, workload
from tests.support.cluster_views import desired
from tests.support.engines import service
from tests.support.engines import workload as rendered_from
from tests.support.fleets import load_texts, node
from tests.support.gguf_models import tiny_llama
from tests.support.http import FileServer
from tests.support.wait import wait_for

CHAT = ref("chat")


@pytest.fixture
def server() -> Iterator[FileServer]:
    """A model that never comes."""
    with FileServer(bytes(1 << 20)) as server:
        server.go_on.clear()
        yield server


@pytest.fixture
def agent(tmp_path: Path, server: FileServer) -> Iterator[LocalAgent]:
    programs = {"vllm": str(tmp_path / "nowhere")}
    agent = LocalAgent("mac", Settings(tmp_path / "state", programs), changed=lambda: None)
    agent.start()
    yield agent
    server.let_go()
    agent.close(stop_children=True)


def change(action: Action, server: FileServer, **settings: Any) -> Change:
    far = model_file(source=server.url, sha256=None, size_bytes=None)
    wanted = workload("chat", models=(far,), settings=settings)
    return Change(action, NODE, CHAT, "Added", None, desired=wanted)


def waiting(agent: LocalAgent) -> list[str]:
    """What others read of who waits, and what is being fetched for them."""
    noted = [f"{i.ref.name}: {i.reason}" for i in read_noted(agent.state, NODE)]
    return noted + ["fetched" for download in agent.store.downloads() if not download.reason]


@pytest.mark.parametrize("action", [Action.CREATE, Action.REPLACE, Action.DRIFT, Action.UPDATE])
def test_a_change_whose_model_is_not_here_sends_for_it_once_and_waits(
    agent: LocalAgent, server: FileServer, action: Action
) -> None:
    first = agent.target.apply(change(action, server))
    again = agent.target.apply(change(action, server))
    other = agent.target.apply(change(action, server, contextSize=512))

    assert first.message == again.message == other.message == "waits for its model"
    assert [o.result for o in (first, again, other)] == [
        Result.APPLIED,
        Result.SKIPPED,  # said already
        Result.APPLIED,
    ]
    assert waiting(agent) == ["chat: Downloading", "fetched"]


def test_an_agent_that_closed_leaves_no_thread_behind(tmp_path: Path, server: FileServer) -> None:
    before = {*threading.enumerate()}
    agent = LocalAgent("mac", Settings(tmp_path / "state"), changed=lambda: None)
    agent.start()
    agent.target.apply(change(Action.CREATE, server))
    fleet = load_texts(node("gpu", agent={"url": "http://127.0.0.1:1"})).fleet
    assert fleet is not None
    agent.handover.follow(fleet)
    agent.handover.successors({CHAT: workload("chat", node="gpu")})
    wait_for(lambda: waiting(agent) == ["chat: Downloading", "fetched"])
    during = {*threading.enumerate()} - before
    server.let_go()

    agent.close(stop_children=True)

    wait_for(lambda: not during & {*threading.enumerate()})
    assert {"drift", "handover"} <= {thread.name for thread in during}


def test_an_agent_writes_all_that_it_knows_again(agent: LocalAgent, server: FileServer) -> None:
    agent.target.apply(change(Action.CREATE, server))
    agent.handover.successors({CHAT: workload("chat", node="gpu")})
    requests.ask(agent.state, requests.STOP, [CHAT])
    agent.target.observe([change(Action.CREATE, server).desired or workload()])
    files = {path: path.read_bytes() for path in agent.state.desired.iterdir()}
    for path in files:
        path.unlink()

    agent.save()

    assert {path: path.read_bytes() for path in agent.state.desired.iterdir()} == files
    assert {path.name for path in files} >= {"expected.json", "moves.json"}


@pytest.mark.parametrize(("stated", "kept"), [({}, []), ({"keeps_expected": True}, [CHAT])])
def test_what_an_earlier_life_waited_for_is_kept_by_who_makes_no_pass(
    tmp_path: Path, stated: Mapping[str, Any], kept: list[ObjectRef]
) -> None:
    state = StateDir.open(tmp_path / "state")
    ExpectedFile(state).write([instance("chat", ready=False, since=1.5)])

    agent = LocalAgent("mac", Settings(state.root), changed=lambda: None, **stated)
    agent.close(stop_children=True)

    assert [i.ref for i in read_noted(state, NODE)] == kept


def test_a_service_whose_model_came_again_is_gone_until_it_starts(tmp_path: Path) -> None:
    with FileServer(tiny_llama(tmp_path / "tiny.gguf").read_bytes()) as server:
        server.go_on.clear()
        wanted = change(Action.CREATE, server).desired
        assert wanted is not None
        state = StateDir.open(tmp_path / "state")
        launch = Launch(
            CHAT, Command(("/nowhere",)), wanted.inputs, wanted.inputs_digest, "", wanted.runtime, 1
        )
        Records(state).write(ProcessRecord(launch, wanted=True, boot="b"))
        programs = {"llama-server": str(tmp_path / "nowhere")}
        agent = LocalAgent("mac", Settings(state.root, programs), changed=lambda: None)
        agent.start(revive=False)
        try:
            agent.target.apply(change(Action.CREATE, server))
            (before,) = agent.target.observe([wanted]).instances
            server.go_on.set()
            wait_for(lambda: agent.store.lookup(*wanted.models) is not None)
            (after,) = agent.target.observe([wanted]).instances
        finally:
            agent.close(stop_children=True)

    assert before.reason != "ModelGone"
    assert (after.gone, after.reason, after.message) == (
        True,
        "ModelGone",
        "its model is here again",
    )


@pytest.mark.parametrize("action", [Action.DELETE, Action.STOP])
def test_a_model_is_not_fetched_for_who_is_to_go(
    agent: LocalAgent, server: FileServer, action: Action
) -> None:
    agent.target.apply(change(Action.CREATE, server))

    agent.target.apply(Change(action, NODE, ref("another"), "Removed", None))
    kept = waiting(agent)
    agent.target.apply(Change(action, NODE, CHAT, "Removed", None))

    assert kept == ["chat: Downloading", "fetched"]
    assert read_noted(agent.state, NODE) == ()
    wait_for(lambda: waiting(agent) == [])


@pytest.mark.parametrize(("reason", "stays"), [("DiskFull", False), ("MemoryFits", True)])
def test_what_the_disk_has_no_room_for_is_fetched_no_longer(
    agent: LocalAgent, server: FileServer, reason: str, stays: bool
) -> None:
    agent.target.apply(change(Action.CREATE, server))
    blocked = Blocked(CHAT, reason, "", None)

    agent.waiting.admit(Plan("r", (), (blocked,), (), {}, {}))

    wait_for(lambda: waiting(agent) == ["chat: Downloading", "fetched"] * stays)


def test_what_a_fleet_says_of_a_machine_that_is_not_so_is_logged_when_it_is_news(
    agent: LocalAgent, caplog: pytest.LogCaptureFixture
) -> None:
    strange = desired({"mac.yaml": node(runtimes=["vllm"])}).fleet.get(
        FleetNode, ObjectRef("FleetNode", "", "mac")
    )

    for stated in (strange, strange, None):
        agent.stated(stated)

    assert caplog.text.count("states runtime vllm, which is not here") == 1


def test_nothing_starts_before_what_follows_from_a_header_is_counted(tmp_path: Path) -> None:
    """Its model may come while a pass is made, which knew nothing of it."""
    data = tiny_llama(tmp_path / "tiny.gguf", experts=4).read_bytes()
    with FileServer(data) as server:
        programs = {"llama-server": sys.executable}
        agent = LocalAgent("mac", Settings(tmp_path / "state", programs), changed=lambda: None)
        agent.start()
        far = model_file(source=server.url, sha256=None, size_bytes=None)
        asked = replace(
            rendered_from(service(moeCPULayers="auto")), models=(far,), origin=workload().origin
        )
        wanted = Change(Action.CREATE, NODE, asked.ref, "Added", None, desired=asked)
        try:
            agent.target.apply(wanted)
            wait_for(lambda: agent.store.lookup(far) is not None)
            before = agent.target.apply(wanted)
            counted = replace(asked, counted={"moeCPULayers": 0})
            after = agent.target.apply(replace(wanted, desired=counted))
        finally:
            agent.close(stop_children=True)

    assert before.result is Result.SKIPPED
    assert "header of its model" in before.message
    assert after.message == "starts"
