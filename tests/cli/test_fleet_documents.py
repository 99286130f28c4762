"""The documents of a whole fleet's page."""

from __future__ import annotations

import weakref
from pathlib import Path

from reconciler.agents.credentials import AgentCredentials
from reconciler.agents.lastseen import LastSeen
from reconciler.agents.nodes import AgentNodes
from reconciler.cli.fleet_documents import FleetDocuments
from reconciler.core.observation import Observation, TargetState
from reconciler.loop import Pass
from tests.support.cluster_views import desired, fleet, nothing_to_do

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
