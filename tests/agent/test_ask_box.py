"""Questions from a service's page, and whose are refused, over real connections."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from agent.server.ask import ask_box
from reconciler.fleet.command import KeyPlace
from tests.support.counting_engine import asked
from tests.support.fleets import service
from tests.support.served_node import Reply, ServedNode
from tests.support.wait import PATIENCE_S, wait_for

CHAT = "/services/default/chat/ask"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedNode]:
    files = {
        "chat.yaml": service("chat", "tiny"),
        "vectors.yaml": service("vectors", "tiny", runtimeOptions={"embeddings": True}),
    }
    with ServedNode.open(tmp_path_factory.mktemp("node"), files) as opened:
        opened.wait_ready()
        yield opened


def ask(node: ServedNode, text: str, path: str = CHAT, **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return node.post(path, headers=FORM | named, body=f"text={text}".encode())


def chats(node: ServedNode) -> int:
    """How many questions have reached the engine."""
    return asked(node.engine_port("chat")).count("/v1/chat/completions")


def test_an_answer_is_plain_text_that_runs_nothing_and_is_kept_nowhere(node: ServedNode) -> None:
    answer = ask(node, "%3Cb%3Ewhy%3F%3C/b%3E", Origin=node.url, Sec_Fetch_Site="same-origin")

    assert (answer.status, answer.text) == (200, "tiny was asked: <b>why?</b>")
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["cache-control"] == "no-store"
    assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize(
    ("path", "text", "headers", "status", "words"),
    [
        (CHAT, "x", {"Host": "evil.test"}, 421, "loopback"),
        (CHAT, "x", {"Origin": "https://evil.test"}, 403, "browser"),
        (CHAT, "x", {"Origin": "http://localhost:1"}, 403, "browser"),
        (CHAT, "x", {"Origin": "null"}, 403, "browser"),
        (CHAT, "x", {"Origin": "", "Sec_Fetch_Site": "cross-site"}, 403, "browser"),
        (CHAT, "x", {"Content_Length": str(1 << 20)}, 413, "256 KiB"),
        (CHAT, "", {}, 400, "ask something"),
        (CHAT, "x&model=other", {}, 400, "no model of that name"),
        ("/services/default/vectors/ask", "x", {}, 409, "it speaks embeddings"),
        ("/services/default/nobody/ask", "x", {}, 409, "Nothing of it runs here."),
    ],
    ids=[
        *("a foreign name", "another site", "another port", "a page without origin"),
        *("another site that hides its name", "a megabyte", "nothing", "another model"),
        *("no chat", "no service"),
    ],
)
def test_what_is_not_passed_on(
    node: ServedNode, path: str, text: str, headers: dict[str, str], status: int, words: str
) -> None:
    before = chats(node)

    refused = ask(node, text, path, **headers)

    assert refused.status == status
    assert words in refused.json()["error"]["message"]
    assert chats(node) == before


def test_a_page_says_why_it_asks_nothing(node: ServedNode) -> None:
    (chat,) = (s for s in node.node.agent.processes.snapshot() if s.ref.name == "chat")
    keyed = replace(chat.launch.command, key=KeyPlace("LLAMA_API_KEY", "api-key"))
    locked = replace(chat, launch=replace(chat.launch, command=keyed))
    loading = replace(chat, ready=False, reason="Loading")

    shown = [ask_box(state, "default/chat").refusal for state in (chat, locked, loading)]

    assert shown == [
        "",
        "It asks for an API key, which no page has: `reconcile ask default/chat` sends it.",
        "It is not ready: Loading.",
    ]
    assert "It has no chat: it speaks embeddings." in node.get("/services/default/vectors").text
    assert 'action="/services/default/chat/ask"' in node.get("/services/default/chat").text


def test_what_nobody_waits_for_is_left(node: ServedNode) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=PATIENCE_S)
    with closing(connection):
        connection.request("POST", CHAT, b"text=go+on", FORM)
        answer = connection.getresponse()
        assert answer.read(4) == b"tiny"
        answer.close()

    wait_for(lambda: "left" in asked(node.engine_port("chat")), "the engine has heard of it")


def test_questions_at_once_are_few(node: ServedNode) -> None:
    opened = [http.client.HTTPConnection("127.0.0.1", node.port) for _ in range(4)]
    for connection in opened:
        connection.request("POST", CHAT, b"text=go+on", FORM)
        connection.getresponse().read(4)

    assert ask(node, "x").status == 503
    for connection in opened:
        connection.close()
    wait_for(lambda: ask(node, "x").status == 200, "room for another")
