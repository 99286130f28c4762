"""The documents of a whole fleet's page."""

from __future__ import annotations

import weakref
from pathlib import Path

import pytest

from reconciler.agents.credentials import AgentCredentials
from reconciler.agents.lastseen import LastSeen
from reconciler.agents.nodes import AgentNodes
from reconciler.cli.fleet_documents import FleetDocuments, page_of
from reconciler.core.observation import Observation, TargetState
from reconciler.loop import Pass
from tests.support.cluster_views import desired, fleet, nothing_to_do
from tests.support.fleets import document, node

CHAT = desired(fleet(chat={}))


class _Targets(dict[str, TargetState]):
    """Those of an observation, and one can tell whether it is still there."""


def planned() -> Pass:
    return Pass(CHAT, Observation(_Targets(), ()), nothing_to_do(CHAT))


def test_each_pass_has_its_documents_made_once(tmp_path: Path) -> None:
    documents = FleetDocuments(AgentNodes(AgentCredentials(), LastSeen(tmp_path / "seen.json")))

    documents.on_planned(planned())
    first, again = documents(), documents()
    documents.on_planned(planned())

    assert again is first
    assert documents() is not first
    assert first.explain("default", "chat") is not None


def test_a_pass_that_was_looked_at_is_not_kept_until_the_next_look(tmp_path: Path) -> None:
    documents, first = FleetDocuments(AgentNodes(AgentCredentials(), LastSeen(tmp_path))), planned()
    documents.on_planned(first)
    shown, known = documents(), weakref.ref(first.observed.targets)

    del first
    documents.on_planned(planned())

    assert shown.plan is not None
    assert known() is None


def test_before_a_pass_there_is_an_empty_page_and_no_service(tmp_path: Path) -> None:
    documents = FleetDocuments(AgentNodes(AgentCredentials(), LastSeen(tmp_path / "seen.json")))

    shown = documents()

    assert (shown.title, shown.status["services"], shown.plan) == ("fleet", [], None)
    assert shown.explain("default", "chat") is None


def test_a_page_is_called_as_the_fleet_is(tmp_path: Path) -> None:
    documents = FleetDocuments(AgentNodes(AgentCredentials(), LastSeen(tmp_path / "seen.json")))
    named = desired({**fleet(chat={}), "fleet.yaml": document("Fleet", "home", {})})

    documents.on_planned(Pass(named, Observation({}, ()), nothing_to_do(named)))

    assert documents().title == "home"


@pytest.mark.parametrize(
    ("target", "page"),
    [
        ("node/far", "https://far.test:9090"),
        ("node/here", None),  # the loopback of another machine is not its own
        ("node/silent", None),
        ("node/l4", None),
        ("node/gone", None),
        ("cluster/far", None),
    ],
)
def test_a_nodes_page_is_where_others_find_it(target: str, page: str | None) -> None:
    nodes = {
        "far.yaml": node("far", agent={"url": "https://far.test:9090/"}),
        "here.yaml": node("here", agent={"url": "http://127.0.0.1:9090"}),
        "silent.yaml": node("silent", agent={}),
    }

    assert page_of(desired({**fleet(), **nodes}).fleet, target) == page
