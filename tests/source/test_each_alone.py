"""A fleet whose objects have many authors: an error is the business of what it concerns."""

from __future__ import annotations

from reconciler.loop.desired import Desired, no_facts
from reconciler.runtimes import RUNTIMES
from reconciler.source.load import examine, load
from reconciler.source.slice import each_alone
from tests.support.builders import ref
from tests.support.fleets import MemoryCheckout, document, model, node, service

BAD = {"bad.yaml": service("bad", "no-such-model")}
GOOD = {"node.yaml": node("mac"), "model.yaml": model(), "chat.yaml": service("chat")}


def test_a_service_with_an_error_is_held_and_the_others_run() -> None:
    checkout = MemoryCheckout({**GOOD, **BAD})
    assert load(checkout, RUNTIMES).fleet is None

    loaded = each_alone(examine(checkout, RUNTIMES), None)

    assert loaded.fleet is not None
    desired = Desired.of(checkout, loaded, loaded.fleet, no_facts)
    assert [w.ref for w in desired.assignment.workloads] == [ref("chat")]
    held = [(h.finding.rule, h.services) for h in desired.assignment.holds]
    assert held == [("DanglingReference", (ref("bad"),))]
    assert [p.rule for p in loaded.errors] == ["DanglingReference"]


def test_a_fleet_object_with_an_error_leaves_nothing_to_go_by() -> None:
    wrong = document("Fleet", "home", {"drift": "sometimes"})

    loaded = each_alone(examine(MemoryCheckout({**GOOD, "fleet.yaml": wrong}), RUNTIMES), None)

    assert loaded.fleet is None


def test_a_revision_without_errors_is_as_it_is() -> None:
    loaded = examine(MemoryCheckout(GOOD), RUNTIMES)

    assert each_alone(loaded, None) is loaded
