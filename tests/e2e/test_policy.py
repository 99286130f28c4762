"""The Fleet's own rules for carrying out a plan: prune limits, drift, allowed hosts."""

from __future__ import annotations

import re

import pytest

from tests.support.fleets import document, model
from tests.support.http import FileServer
from tests.support.reconciler import Fleet, Machine, Running
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e
NAMES = ("a", "b", "c", "d")


def _policy(**spec: object) -> str:
    return document("Fleet", "home", spec)


def _guarded(machine: Machine, fleet: Fleet) -> tuple[Running, str]:
    """Five services run, a push removed four of them, and that was held: the token."""
    for name in (*NAMES, "kept"):
        fleet.push_service(name)
    running = machine.start("-C", fleet.url, "--local")
    for name in (*NAMES, "kept"):
        machine.wait_ready(name)
    fleet.push_removal(*NAMES)
    running.wait_planned("NeedsConfirmation")
    found = re.search(r"confirm: \[(prune-[0-9a-f]+)\]", running.out)
    assert found
    return running, found[1]


def test_many_removals_wait_for_the_committed_token_which_releases_exactly_them(
    machine: Machine, fleet: Fleet
) -> None:
    running, token = _guarded(machine, fleet)
    before = machine.instances()
    assert set(before) == {*NAMES, "kept"}
    assert all(instance.ready for instance in before.values())
    assert "4 of 5 services of this fleet would stop" in running.out
    dry = machine.reconcile("-C", fleet.url, "--local", "--dry-run", "-o", "json")
    assert dry.code == 3
    assert [b["reason"] for b in dry.json()["blocked"]] == ["NeedsConfirmation"]
    assert dry.json()["blocked"][0]["confirm"] == token

    fleet.repo.publish({"fleet.yaml": _policy(confirm=["prune-00000000"])}, "A wrong token")
    running.wait_planned("NeedsConfirmation", count=2)
    assert set(machine.instances()) == {*NAMES, "kept"}

    fleet.repo.publish({"fleet.yaml": _policy(confirm=[token])}, "Confirm")
    for name in NAMES:
        machine.wait_gone(name, before[name].pid)
    kept = machine.instance("kept")
    assert kept
    assert kept.pid == before["kept"].pid


def test_confirm_on_the_command_line_releases_them_too(machine: Machine, fleet: Fleet) -> None:
    running, token = _guarded(machine, fleet)
    assert running.end() == 0

    done = machine.reconcile("-C", fleet.url, "--local", "--once", "--confirm", token)

    assert done.code == 0
    assert set(machine.instances()) == {"kept"}


def test_a_model_from_a_host_that_is_not_allowed_is_blocked_with_what_to_do(
    machine: Machine, fleet: Fleet
) -> None:
    with FileServer(b"never asked for") as server:
        fleet.repo.write("fleet.yaml", _policy(allowedHosts=["models.example.com"]))
        fleet.repo.write("models/remote.yaml", model("remote", source=server.url))
        fleet.push_service("remote", "remote")
        fleet.push_service("chat")
        running = machine.start("-C", fleet.url, "--local")

        machine.wait_ready("chat")
        wait_for(lambda: "127.0.0.1" in running.out + running.err)

    said = running.out + running.err
    assert "allowedHosts" in said
    assert server.requests == []
    assert set(machine.instances()) == {"chat"}
