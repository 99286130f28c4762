"""Agents read over the network: what is believed, and what becomes of those that misbehave."""

from __future__ import annotations

import hashlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from reconciler.agents.client import Answer, judged
from reconciler.agents.credentials import Credentials
from reconciler.agents.lastseen import LastSeen
from reconciler.agents.nodes import AgentNodes, Heard, Patience
from reconciler.agents.parallel import ask_all
from reconciler.fleet import Fleet
from reconciler.plan import RevisionState, TargetState
from reconciler.target import Result
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

_NO_CREDENTIALS = Credentials()
_ANY_TIME = Patience(each_s=PATIENCE_S, all_s=2 * PATIENCE_S)
_IMPATIENT = Patience(each_s=0.7, all_s=1.0)
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
    credentials: Credentials = _NO_CREDENTIALS,
    patience: Patience = _ANY_TIME,
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
    heard = {n: Heard(Answer(judged(said_by(n), n), 0.0), "", 5.0) for n in ("attic", "dead")}
    stale = {name: Heard(None, "heard of last at noon", 4.0) for name in ("cellar", "deaf")}

    observed = found.hear(heard | stale)

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
        (sends(b"<html>router</html>"), "is no agent of ours: expected"),
        (sends(b"[" * 100_000), "there is no agent of ours: "),
        (sends(b"{}"), "makes no sense: node: Field required"),
        (sends(b'{"formatVersion": 9}'), "speaks format 9"),
        (sends(b"", 500), "answers 500"),
        (sends(b'{"error":' * 100_000, 500), "answers 500: look into"),
        (sends(b"", 404), "no agent of ours answers there (404)"),
        (sends(b"", 302, Location="http://127.0.0.1:1/"), "redirects (302), which is not followed"),
        (sends(b"{}", length=50), "ended 48 bytes early"),
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
    assert "makes no sense" in state.message


@pytest.mark.parametrize("inputs", [{"lifecycle": 1}, {"settings": []}, {"models": [1]}])
def test_inputs_that_no_plan_could_compare_are_no_answer(
    tmp_path: Path, agent: FakeAgent, inputs: dict[str, Any]
) -> None:
    agent.state = said_by("mac", instance("chat"))
    agent.state["instances"][0]["inputs"] = inputs

    assert "makes no sense: default/chat" in look(nodes(tmp_path, mac=agent)).message


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
        patience = Patience(each_s=3.0, all_s=10.0)
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
    file.write_text("wrong\n")
    found = nodes(tmp_path, Credentials(token_file=file), mac=agent)
    wrong = look(found)

    file.write_text("right\n")
    right = look(found)

    assert f"does not accept the token in {file} (401)" in wrong.message
    assert "wrong" not in wrong.message.replace(str(file), "")
    assert right.reachable


def test_a_folder_of_tokens_has_one_for_each_node(tmp_path: Path, agent: FakeAgent) -> None:
    folder = tmp_path / "tokens"
    folder.mkdir()
    (folder / "mac.token").write_text("for-mac")
    with FakeAgent("gpu") as other:
        other.token = agent.token = "for-mac"

        found = nodes(tmp_path, Credentials(token_file=folder), mac=agent, gpu=other)

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

    state = look(nodes(tmp_path, Credentials(token_file=file), mac=agent))

    assert str(file) in state.message
    assert agent.requests == []


def test_a_token_never_crosses_the_network_in_the_clear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text("secret")
    called: list[object] = []
    monkeypatch.setattr(socket, "create_connection", lambda *call: called.append(call))
    url = "http://192.0.2.1:9090"  # nobody's address (RFC 5737)

    state = look(nodes(tmp_path, Credentials(token_file=file), mac={"url": url}))

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
        found = nodes(tmp_path, Credentials(ca_file=certificate[0]), mac={"url": agent.url})

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

    found.wake_with_next_look()
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
        found.wake_with_next_look()

        found.observe()

    assert seen == [True]


def test_an_agent_that_cannot_be_woken_is_read_all_the_same(
    tmp_path: Path, agent: FakeAgent
) -> None:
    def refuses_posts(agent: FakeAgent, request: Any) -> None:
        (answers if request.command == "GET" else sends(b"", 405))(agent, request)

    agent.behaves = refuses_posts
    found = nodes(tmp_path, mac=agent)
    found.wake_with_next_look()

    assert look(found).reachable
    assert "(405)" in found.asleep["mac"]


def test_nobody_tells_an_agent_what_to_run(tmp_path: Path, agent: FakeAgent) -> None:
    from reconciler.plan import Action, Change

    found = nodes(tmp_path, mac=agent)
    change = Change(Action.DELETE, "node/mac", instance("chat").ref, "Removed", None)

    outcome = found.apply(change)

    assert outcome.result is Result.SKIPPED
    assert agent.requests == []


def fingerprint(certificate: Path) -> str:
    der = ssl.PEM_cert_to_DER_cert(certificate.read_text())
    return hashlib.sha256(der).hexdigest()
