"""The scripted agent of the tests answers as the real one does, as far as a reader can tell."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.agents.client import STALE_AFTER_S, AgentClient
from reconciler.agents.credentials import AgentCredentials
from reconciler.api.errors import AgentError
from tests.support.agents import FakeAgent
from tests.support.served_node import ServedNode
from tests.support.wait import PATIENCE_S, wait_for


@pytest.fixture(params=["scripted", "real"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AgentClient]:
    """A reader of the node `mac`, whose agent has looked at it at least once."""
    if request.param == "scripted":
        with FakeAgent("mac") as agent:
            agent.etag = 'W/"1"'
            yield AgentClient("mac", agent.url, None, AgentCredentials())
        return
    with ServedNode.open(tmp_path, {}) as node:
        wait_for(lambda: node.get("/v1/state").status == 200, "the first look")
        yield AgentClient("mac", node.url, None, AgentCredentials())


def test_its_state_is_that_of_its_node_and_new(client: AgentClient) -> None:
    answer = client.state(_soon())

    assert answer.state.node == "mac"
    assert answer.state.agent_version
    assert answer.age_s < STALE_AFTER_S
    assert answer.etag


def test_what_is_known_is_not_sent_again(client: AgentClient) -> None:
    def is_not_sent() -> bool:
        known = client.state(_soon())
        return client.state(_soon(), known) is known

    wait_for(is_not_sent, "a node of which nothing changes between two questions")


def test_it_can_be_woken_as_often_as_one_likes(client: AgentClient) -> None:
    for _ in range(3):
        client.wake(_soon())


def test_a_url_that_is_not_its_root_is_said(client: AgentClient) -> None:
    elsewhere = replace(client, url=f"{client.url}/elsewhere")

    with pytest.raises(AgentError, match=r"no fleet-agent answers there \(40[45]\)"):
        elsewhere.state(_soon())


def test_another_nodes_reader_does_not_believe_it(client: AgentClient) -> None:
    with pytest.raises(AgentError, match="answers for node mac, not for gpu"):
        replace(client, node="gpu").state(_soon())


def _soon() -> float:
    return time.monotonic() + PATIENCE_S
