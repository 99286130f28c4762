"""Which machines left a fleet: what is known of agents that were asked, beside a revision."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.agents.credentials import AgentCredentials
from reconciler.agents.lastseen import LastSeen, Seen
from reconciler.agents.left import OurFleet
from reconciler.agents.left_nodes import LeftNodes
from reconciler.fleet.fleet import Fleet
from tests.support.fleets import load_texts, node

_OLDER, _NEWER, _OTHER = "a" * 40, "b" * 40, "c" * 40
_URL = "http://127.0.0.1:1"


_looked: list[str] = []


def _is_ancestor(older: str, newer: str) -> bool:
    _looked.append(older)
    return (older, newer) == (_OLDER, _NEWER)


def _seen(**known: Any) -> Seen:
    usual = Seen(time.time(), "F", revision=_OLDER, services=("default/chat",))
    return replace(usual, **known)


def _declaring(text: str) -> Fleet:
    fleet = load_texts(text).fleet
    assert fleet is not None
    return replace(fleet, revision=_NEWER)


def _left(folder: Path, seen: Seen, fleet: Fleet) -> set[str]:
    file = folder / "seen.json"
    first = LastSeen(file)
    first.note("b", _URL, seen)
    first.save()
    found = LeftNodes(LastSeen(file), AgentCredentials(), OurFleet("F", "", _is_ancestor))
    found.follow(fleet)
    return set(found.clients)


@pytest.mark.parametrize(
    ("seen", "asked"),
    [
        pytest.param(_seen(), True, id="it applied what came before"),
        pytest.param(_seen(revision=_OTHER), False, id="of another branch"),
        pytest.param(_seen(revision=_NEWER), False, id="follows another folder"),
        pytest.param(_seen(root="staging"), False, id="of another folder"),
        pytest.param(_seen(services=()), False, id="ran nothing"),
        pytest.param(_seen(at=time.time() - 8 * 86400), False, id="silent for a week"),
        pytest.param(_seen(revision=""), True, id="of the same place, without a commit"),
        pytest.param(_seen(revision="", fleet="G"), False, id="of another place, without one"),
        pytest.param(Seen(time.time()), False, id="written by 0.1"),
    ],
)
def test_a_machine_is_asked_on_where_it_was_of_this_fleet(
    seen: Seen, asked: bool, tmp_path: Path
) -> None:
    fleet = _declaring(node("a"))

    assert _left(tmp_path, seen, fleet) == ({"b"} if asked else set())


@pytest.mark.parametrize("name", ["b", "c"])
def test_where_a_node_of_the_fleet_answers_by_now_none_has_left(name: str, tmp_path: Path) -> None:
    fleet = _declaring(node(name, agent={"url": _URL}))
    _looked.clear()

    assert _left(tmp_path, _seen(), fleet) == set()
    assert _looked == []  # which a thousand nodes would pay for with each revision
