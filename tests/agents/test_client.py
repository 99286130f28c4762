"""Agents read over the network: what is believed, and what becomes of those that misbehave."""

from __future__ import annotations

import hashlib
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from reconciler.agents.client import AgentAnswer, judged
from reconciler.agents.connection import Trust, tls_context
from reconciler.agents.credentials import AgentCredentials, is_for
from reconciler.agents.lastseen import LastSeen
from reconciler.agents.nodes import AgentNodes, AgentReport, AgentTimeouts
from reconciler.agents.parallel import ask_all
from reconciler.api.fleetnode import FleetNode
from reconciler.api.nodestate import NodeOverrides
from reconciler.cli.fleet_steps import FleetSteps
from reconciler.core.observation import RevisionState, TargetState
from reconciler.core.target import Result
from reconciler.fleet.fleet import Fleet
from reconciler.loop.desired import Desired, no_facts
from reconciler.runtimes import RUNTIMES
from reconciler.source.directory import DirectorySource
from reconciler.source.load import load
from tests.support.agents import (
    Behaviour,
    FakeAgent,
    answers,
    drips,
    drips_body,
    floods,
    hangs,
    said_by,
    sends,
)
from tests.support.builders import instance
from tests.support.certificates import self_signed
from tests.support.fleets import load_folder, node, write_fleet
from tests.support.wait import PATIENCE_S, wait_for

_NO_CREDENTIALS = AgentCredentials()
_ANY_TIME = AgentTimeouts(each_s=PATIENCE_S, all_s=2 * PATIENCE_S)
_IMPATIENT = AgentTimeouts(each_s=0.7, all_s=1.0)
_STATE = b'{"node": "mac", "agentVersion": "1", "observedAt": =at=}'
_UGLY = {"kind": "InferenceService", "namespace": "default", "name": "\x1b[2J"}


@pytest.fixture
def agent() -> Iterator[FakeAgent]:
    with FakeAgent("mac") as agent:
        yield agent


def fleet_of(folder: Path, **agents: dict[str, Any]) -> Fleet:
    """A fleet with these nodes; the values are their `spec.agent`."""
    files = {f"{name}.yaml": node(name, agent=spec) for name, spec in agents.items()}
    fleet = load_folder(write_fleet(folder / "fleet", files)).fleet
    assert fleet is not None
    return fleet


def nodes(
    folder: Path,
    credentials: AgentCredentials = _NO_CREDENTIALS,
    patience: AgentTimeouts = _ANY_TIME,
    /,
    **agents: Any,
) -> AgentNodes:
    specs = {n: {"url": a.url} if isinstance(a, FakeAgent) else a for n, a in agents.items()}
    found = AgentNodes(credentials, LastSeen(folder / "seen.json"), patience)
    found.follow(fleet_of(folder, **specs))
    return found


def look(found: AgentNodes, name: str = "mac") -> TargetState:
    return found.observe().targets[f"node/{name}"]


def test_what_the_agents_say_is_what_is_observed(tmp_path: Path, agent: FakeAgent) -> None:
    runs = instance("chat")
    agent.state = said_by("mac", runs, revision=RevisionState("a" * 40, "a" * 40))

    observed = nodes(tmp_path, mac=agent).observe()

    state = observed.targets["node/mac"]
    assert observed.instances == (runs,)
    assert state.reachable
    assert state.revision == RevisionState("a" * 40, "a" * 40)
    assert agent.requests == [("GET", "/v1/state")]


def test_a_model_that_runs_on_a_node_needs_no_download_there(
    tmp_path: Path, agent: FakeAgent
) -> None:
    agent.state = said_by("mac", instance("chat", pid=4), instance("next"))

    cached = look(nodes(tmp_path, mac=agent)).cached

    assert cached == {"ab" * 32, "https://models.test/gemma.gguf"}


def test_a_node_that_gives_no_answer_is_as_it_was_heard_elsewhere(
    tmp_path: Path, agent: FakeAgent
) -> None:
    agent.state = said_by("mac", instance("chat"))
    dead = {"url": "http://127.0.0.1:1"}
    found = nodes(tmp_path, mac=agent, attic={}, cellar={}, dead=dead, deaf=dead)
    found.observe()
    heard = {
        n: AgentReport(AgentAnswer(judged(said_by(n), n), 0.0), "", 5.0) for n in ("attic", "dead")
    }
    stale = {name: AgentReport(None, "heard of last at noon", 4.0) for name in ("cellar", "deaf")}

    observed = found.merge(heard | stale)

    targets = {target.removeprefix("node/"): state for target, state in observed.targets.items()}
    assert {name for name, state in targets.items() if state.reachable} == {"mac", "attic", "dead"}
    assert (targets["cellar"].message, targets["cellar"].seen_at) == ("heard of last at noon", 4.0)
    assert "connection refused" in targets["deaf"].message
    assert found.states.keys() == {"node/mac", "node/attic", "node/dead"}
    assert not found.unasked  # the cellar's agent was there, and may come back
    assert not look(found, "attic").reachable  # it has to be heard with each look


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (hangs, "no answer within"),
        (drips, "no answer within"),
        (drips_body, "no answer within"),
        (floods, "more than 8 MiB"),
        (sends(b"<html>router</html>"), "is not a fleet-agent: expected"),
        (sends(b"[" * 100_000), "there is not a fleet-agent: "),
        (sends(b"{}"), "is invalid: node: Field required"),
        (sends(b'{"formatVersion": 9}'), "speaks format 9"),
        (sends(b"", 500), "answers 500"),
        (sends(b'{"error":' * 100_000, 500), "answers 500: look into"),
        (sends(b"", 404), "no fleet-agent answers there (404)"),
        (sends(b"", 302, Location="http://127.0.0.1:1/"), "redirects (302), which is not followed"),
        (sends(b"{}", length=50), "ended 48 bytes early"),
        (sends(_STATE.replace(b"=at=", b"-1e300")), "is invalid: observedAt: Input should be"),
        (sends(_STATE.replace(b"=at=", b"1e300")), "observedAt: Input should be less than"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else value.__name__,
)
def test_an_agent_that_misbehaves_is_unreachable_and_the_others_are_not(
    tmp_path: Path, agent: FakeAgent, behaviour: Behaviour, said: str
) -> None:
    agent.behaves = behaviour
    patience = _IMPATIENT if said.startswith("no answer") else _ANY_TIME

    with FakeAgent("gpu") as other:
        found = nodes(tmp_path, _NO_CREDENTIALS, patience, mac=agent, gpu=other)

        def reaches_the_other() -> bool:
            seen = found.observe().targets
            assert not seen["node/mac"].reachable
            assert said in seen["node/mac"].message
            assert agent.url in seen["node/mac"].message
            return seen["node/gpu"].reachable

        wait_for(reaches_the_other, "a look for which this machine was quick enough")


def test_a_redirect_is_never_followed(tmp_path: Path, agent: FakeAgent) -> None:
    with FakeAgent("mac") as elsewhere:
        agent.behaves = sends(b"", 307, Location=f"{elsewhere.url}/v1/state")

        look(nodes(tmp_path, mac=agent))

        assert elsewhere.requests == []


@pytest.mark.parametrize(
    "change",
    [
        {"observedAt": None},
        {"instances": [{"ref": 1}]},
        {"instances": "many"},
        {"blocked": [{"ref": _UGLY, "reason": "No", "message": ""}]},
        {"stopped": [{"ref": _UGLY, "inputsDigest": ""}]},
        {"pools": [{"name": "unified", "totalBytes": "much"}]},
    ],
)
def test_an_answer_that_makes_no_sense_is_none(
    tmp_path: Path, agent: FakeAgent, change: dict[str, Any]
) -> None:
    agent.state |= change

    state = look(nodes(tmp_path, mac=agent))

    assert not state.reachable
    assert "is invalid" in state.message


@pytest.mark.parametrize("inputs", [{"lifecycle": 1}, {"settings": []}, {"models": [1]}])
def test_inputs_that_no_plan_could_compare_are_no_answer(
    tmp_path: Path, agent: FakeAgent, inputs: dict[str, Any]
) -> None:
    agent.state = said_by("mac", instance("chat"))
    agent.state["instances"][0]["inputs"] = inputs

    assert "is invalid: default/chat" in look(nodes(tmp_path, mac=agent)).message


def test_an_agent_that_answers_for_another_node_is_not_believed(
    tmp_path: Path, agent: FakeAgent
) -> None:
    agent.state = said_by("gpu")

    state = look(nodes(tmp_path, mac=agent))

    assert not state.reachable
    assert "answers for node gpu, not for mac" in state.message


def test_a_newer_agent_is_read_as_far_as_it_is_known(tmp_path: Path, agent: FakeAgent) -> None:
    agent.state |= {"mood": "good"}

    assert look(nodes(tmp_path, mac=agent)).reachable


def test_a_node_without_a_url_is_unknown_without_a_call(tmp_path: Path) -> None:
    state = look(nodes(tmp_path, mac={}))

    assert not state.reachable
    assert "states no spec.agent.url" in state.message


def test_an_agent_that_is_gone_was_last_seen_also_by_a_new_process(tmp_path: Path) -> None:
    with FakeAgent("mac") as agent:
        seen = look(nodes(tmp_path, mac=agent)).seen_at

    after = look(nodes(tmp_path, mac={"url": agent.url}))

    assert not after.reachable
    assert "connection refused: does fleet-agent run there?" in after.message
    assert after.seen_at == seen


@pytest.mark.parametrize("kept", ["", "[]", '{"mac": "yesterday"}', "\x00"])
def test_a_damaged_memory_of_who_was_seen_loses_only_that(
    tmp_path: Path, agent: FakeAgent, kept: str
) -> None:
    (tmp_path / "seen.json").write_text(kept)

    assert look(nodes(tmp_path, mac=agent)).reachable


def test_a_loop_that_hangs_is_said_by_the_nodes_own_clock(tmp_path: Path, agent: FakeAgent) -> None:
    agent.state = said_by("mac", at=time.time() - 600)

    state = look(nodes(tmp_path, mac=agent))

    assert state.reachable
    assert "has not looked at its node for 10 min" in state.message


def test_what_did_not_change_is_not_sent_again(tmp_path: Path, agent: FakeAgent) -> None:
    agent.etag = '"one"'
    agent.state = said_by("mac", instance("chat"))
    found = nodes(tmp_path, mac=agent)
    first = found.observe()

    second = found.observe()

    assert agent.unchanged == 1
    assert second.instances == first.instances


def test_who_never_answers_is_left_behind_when_the_time_is_over() -> None:
    never, asked = threading.Event(), threading.Event()
    questions = {"dead": lambda: asked.set() or never.wait(PATIENCE_S), "alive": lambda: True}

    def found() -> dict[str, bool]:
        return ask_all(questions, time.monotonic() + 0.2)

    wait_for(lambda: found() == {"alive": True} and asked.is_set(), "an answer in time")
    assert not never.is_set()
    never.set()


def test_a_question_that_raises_ends_as_that_error_at_once() -> None:
    never = threading.Event()

    def raises() -> bool:
        raise ValueError("a bug in this program")

    try:
        with pytest.raises(ValueError, match="a bug in this program"):
            ask_all({"hangs": lambda: never.wait(PATIENCE_S), "bad": raises}, time.monotonic() + 60)
    finally:
        never.set()


@pytest.mark.e2e
def test_of_a_hundred_agents_twenty_that_are_dead_keep_no_other_from_being_read(
    tmp_path: Path,
) -> None:
    with ExitStack() as stack:
        live = [stack.enter_context(FakeAgent(f"n{i:02}")) for i in range(80)]
        silent = [stack.enter_context(_deaf()) for _ in range(20)]
        urls = {f"n{i:02}": {"url": a.url} for i, a in enumerate(live)}
        urls |= {
            f"a{i:02}": {"url": f"http://127.0.0.1:{s.getsockname()[1]}"}
            for i, s in enumerate(silent)
        }
        patience = AgentTimeouts(each_s=3.0, all_s=10.0)
        found = AgentNodes(_NO_CREDENTIALS, LastSeen(tmp_path / "seen.json"), patience)
        found.follow(fleet_of(tmp_path, **urls))

        def are_read() -> bool:
            states = found.observe().targets.values()
            return sum(state.reachable for state in states) == 80

        wait_for(are_read, "a look for which this machine was quick enough")


def _deaf() -> socket.socket:
    """Takes connections and never reads one: what a machine that hangs looks like."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen()
    return sock


# -- who may ask, and who is believed


def test_the_token_is_shown_and_a_wrong_one_is_said(tmp_path: Path, agent: FakeAgent) -> None:
    agent.token = "right"
    file = tmp_path / "token"
    file.write_text("wrong\n127.0.0.1\n")
    found = nodes(tmp_path, AgentCredentials(token_file=file), mac=agent)
    wrong = look(found)

    file.write_text("right\n127.0.0.1\n")
    right = look(found)

    assert f"does not accept the token in {file} (401)" in wrong.message
    assert "wrong" not in wrong.message.replace(str(file), "")
    assert right.reachable


def test_a_folder_of_tokens_has_one_for_each_node(tmp_path: Path, agent: FakeAgent) -> None:
    folder = tmp_path / "tokens"
    folder.mkdir()
    (folder / "mac.token").write_text("for-mac\n127.0.0.1\n")
    with FakeAgent("gpu") as other:
        other.token = agent.token = "for-mac"

        found = nodes(tmp_path, AgentCredentials(token_file=folder), mac=agent, gpu=other)

        assert look(found).reachable
        assert f"does not accept the token in {folder / 'gpu.token'}" in look(found, "gpu").message
        assert set(other.tokens) == {None}


def test_an_agent_that_wants_a_token_says_how_to_give_it(tmp_path: Path, agent: FakeAgent) -> None:
    agent.token = "secret"

    assert "give its file with --agent-token-file" in look(nodes(tmp_path, mac=agent)).message


@pytest.mark.parametrize("content", ["", "two words", "line\nline", "\x00", "ünïcode"])
def test_a_file_that_holds_no_token_is_said(tmp_path: Path, agent: FakeAgent, content: str) -> None:
    file = tmp_path / "token"
    file.write_text(content)

    state = look(nodes(tmp_path, AgentCredentials(token_file=file), mac=agent))

    assert str(file) in state.message
    assert agent.requests == []


@pytest.mark.parametrize("below", ["", "127.0.0.1:1\n", "*.lan\ngpu-1.lan:9090\n"])
def test_a_token_goes_to_no_address_that_a_commit_alone_names(
    tmp_path: Path, agent: FakeAgent, below: str
) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n" + below)

    state = look(nodes(tmp_path, AgentCredentials(token_file=file), mac=agent))

    address = agent.url.removeprefix("http://")
    assert f"the token in {file} is not for this address" in state.message
    assert f"add the line {address} below the token" in state.message
    assert "secret" not in state.message
    assert agent.requests == []


@pytest.mark.parametrize(
    ("line", "host", "port", "expected"),
    [
        ("gpu-1.lan", "gpu-1.lan", 443, True),
        ("gpu-1.lan:9090", "gpu-1.lan", 9090, True),
        ("GPU-1.lan:9090", "gpu-1.lan", 9090, True),
        ("https://gpu-1.lan:9090/", "gpu-1.lan", 9090, True),
        ("gpu-1.lan:9090", "gpu-1.lan", 9091, False),
        ("*.gpu.lan:9090", "a.b.gpu.lan", 9090, True),
        ("*.gpu.lan", "gpu.lan", 443, False),
        ("*.gpu.lan", "evilgpu.lan", 443, False),
        ("gpu-1.lan", "gpu-1.lan.evil.example", 443, False),
        ("[fd00::1]:9090", "fd00::1", 9090, True),
        ("[fd00::1]", "fd00::1", 9090, True),
        ("[fd00::1]", "fd00::2", 9090, False),
        ("*", "gpu-1.lan", 443, False),
    ],
)
def test_a_line_below_a_token_names_an_address(
    line: str, host: str, port: int, expected: bool
) -> None:
    assert is_for(line, host, port) is expected


def test_a_token_never_crosses_the_network_in_the_clear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n192.0.2.1:9090\n")
    called: list[object] = []
    monkeypatch.setattr(socket.socket, "connect", lambda *call: called.append(call))
    url = "http://192.0.2.1:9090"  # nobody's address (RFC 5737)

    state = look(nodes(tmp_path, AgentCredentials(token_file=file), mac={"url": url}))

    assert "in the clear" in state.message
    assert called == []


def test_exactly_the_pinned_certificate_is_believed(tmp_path: Path) -> None:
    mine, other = self_signed(tmp_path / "mine"), self_signed(tmp_path / "other")
    with FakeAgent("mac", certificate=mine) as agent:
        pinned = nodes(tmp_path, mac={"url": agent.url, "certSha256": fingerprint(mine[0])})
        wrong = nodes(tmp_path, mac={"url": agent.url, "certSha256": fingerprint(other[0])})
        unpinned = nodes(tmp_path, mac={"url": agent.url})

        assert look(pinned).reachable
        agent.requests.clear()
        assert f"its certificate has sha256 {fingerprint(mine[0])}" in look(wrong).message
        assert "is not trusted" in look(unpinned).message
        assert agent.requests == []


def test_a_pin_is_not_forgotten_where_the_address_is_plain_http(
    tmp_path: Path, agent: FakeAgent
) -> None:
    state = look(nodes(tmp_path, mac={"url": agent.url, "certSha256": "a" * 64}))

    assert "shows no certificate" in state.message
    assert agent.requests == []


def test_a_certificate_that_is_vouched_for_needs_no_pin(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path)
    with FakeAgent("mac", certificate=certificate) as agent:
        found = nodes(tmp_path, AgentCredentials(ca_file=certificate[0]), mac={"url": agent.url})

        assert look(found).reachable


def test_a_wrong_scheme_is_said_as_one(tmp_path: Path, agent: FakeAgent) -> None:
    with FakeAgent("gpu", certificate=self_signed(tmp_path)) as secure:
        swapped = {"url": agent.url.replace("http:", "https:")}
        found = nodes(tmp_path, mac=swapped, gpu={"url": secure.url.replace("https:", "http:")})

        assert "does an https agent listen there?" in look(found).message
        assert "is it https?" in look(found, "gpu").message


@pytest.mark.parametrize("url", ["http://", "http://[::1", "http://a:b", "http://" + "a" * 300])
def test_an_address_that_is_none_is_said(tmp_path: Path, url: str) -> None:
    state = look(nodes(tmp_path, mac={"url": url}))

    assert not state.reachable
    assert url in state.message


# -- waking


def test_an_agent_is_woken_after_it_said_what_it_ran_before(
    tmp_path: Path, agent: FakeAgent
) -> None:
    found = nodes(tmp_path, mac=agent)

    found.wake_with_next_observation()
    found.observe()
    found.observe()

    assert agent.requests == [("GET", "/v1/state"), ("POST", "/v1/wake"), ("GET", "/v1/state")]
    assert found.asleep == {}


def test_a_dead_agent_delays_nobodys_wake(tmp_path: Path, agent: FakeAgent) -> None:
    woken, seen = threading.Event(), list[bool]()
    agent.on_wake = woken.set

    def answers_nobody_before_the_other_is_woken(*_: object) -> None:
        seen.append(woken.wait(PATIENCE_S))

    with FakeAgent("dead") as dead:
        dead.behaves = answers_nobody_before_the_other_is_woken
        found = nodes(tmp_path, mac=agent, dead=dead)
        found.wake_with_next_observation()

        found.observe()

    assert seen == [True]


def test_an_agent_that_cannot_be_woken_is_read_all_the_same(
    tmp_path: Path, agent: FakeAgent
) -> None:
    def refuses_posts(agent: FakeAgent, request: Any) -> None:
        (answers if request.command == "GET" else sends(b"", 405))(agent, request)

    agent.behaves = refuses_posts
    found = nodes(tmp_path, mac=agent)
    found.wake_with_next_observation()

    assert look(found).reachable
    assert "(405)" in found.asleep["mac"]


def test_nobody_tells_an_agent_what_to_run(tmp_path: Path, agent: FakeAgent) -> None:
    from reconciler.core.plan import Action, Change

    found = nodes(tmp_path, mac=agent)
    change = Change(Action.DELETE, "node/mac", instance("chat").ref, "Removed", None)

    outcome = found.apply(change)

    assert outcome.result is Result.SKIPPED
    assert agent.requests == []


def fingerprint(certificate: Path) -> str:
    der = ssl.PEM_cert_to_DER_cert(certificate.read_text())
    return hashlib.sha256(der).hexdigest()


def test_words_that_an_agent_changes_or_takes_back_are_not_planned_with(
    agent: FakeAgent, tmp_path: Path
) -> None:
    """As after a restart with another --memory-fraction, or with none."""
    found = nodes(tmp_path, mac=agent)
    source = DirectorySource(tmp_path / "fleet")
    checkout = source.fetch()
    loaded = load(checkout, RUNTIMES)
    assert loaded.fleet is not None
    desired = Desired.of(checkout, loaded, loaded.fleet, no_facts)
    seen = []
    steps = FleetSteps(found, lambda fleet: fleet, no_facts, None, lambda: None).comparing()

    for overrides in (
        NodeOverrides(memory_fraction=0.5),
        NodeOverrides(memory_fraction=0.8),
        None,
        None,
    ):
        agent.state = said_by("mac", overrides=overrides)
        found.observe()
        before, desired = desired, steps.agent_overlay(desired)
        (mac,) = desired.fleet.all(FleetNode)
        seen.append(mac.spec.memory.fraction)

    assert seen == [0.5, 0.8, None, None]
    assert desired is before  # nothing new was said, so nothing was decided again


def test_authorities_are_loaded_once_for_all_agents_and_again_when_they_change(
    tmp_path: Path,
) -> None:
    """20 ms of CPU each: a pass over a thousand agents took 20 s."""
    authorities, _ = self_signed(tmp_path)

    first = tls_context(Trust(ca_file=authorities))
    again = tls_context(Trust(ca_file=authorities))
    os.utime(authorities, ns=(1, 1))

    assert again is first
    assert tls_context(Trust(ca_file=authorities)) is not first
    assert tls_context(Trust("a" * 64)) is tls_context(Trust("b" * 64))
    assert tls_context(Trust("a" * 64)) is not tls_context(Trust())


@pytest.mark.parametrize(("agents", "seconds"), [(1, 5.0), (200, 5.0), (1_000, 13.0)])
def test_more_agents_have_more_time_together(agents: int, seconds: float) -> None:
    """Else those of a large fleet count as unreachable while all of them answer."""
    assert AgentTimeouts().together_s(agents) == seconds
