"""What a push does to the processes of a machine that follows the branch."""

from __future__ import annotations

import re

import pytest

from tests.support.client import complete, context_size
from tests.support.pids import alive
from tests.support.reconciler import Fleet, Machine
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e


def test_a_pushed_service_answers_a_change_restarts_it_and_its_removal_ends_only_it(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("other")
    running = machine.start("-C", fleet.url, "--local")
    other = machine.wait_ready("other")

    # A push adds a service.
    added = fleet.push_service("chat", contextSize=1024)
    chat = machine.wait_ready("chat")
    assert chat.endpoint
    assert complete(chat.endpoint)
    assert context_size(chat.endpoint) == 1024
    assert f"services/chat.yaml:1   {added[:7]}" in running.out

    # A push changes it: the plan says what that costs, then it is so.
    running.wait_said("default/chat  ready")  # from now on it is known how long a start takes
    changed = fleet.push_service("chat", contextSize=2048)
    after = machine.wait_ready("chat", not_pid=chat.pid)
    assert after.port == chat.port
    assert context_size(chat.endpoint) == 2048
    plan = running.out[running.out.index("-/+") :]
    assert f"services/chat.yaml:6   {changed[:7]}" in plan
    line = next(line for line in plan.splitlines() if "contextSize" in line)
    assert line.split()[:4] == ["contextSize", "1024", "->", "2048"]
    assert re.search(r"restart; memory .*; down ~", plan)  # it was measured when it started

    # A push removes it.
    removed = fleet.push_removal("chat")
    assert after.pid
    machine.wait_gone("chat", after.pid)
    running.wait_planned("Plan: 1 to delete")
    assert f"services/chat.yaml:1   {removed[:7]}" in running.out

    # All the while, the other one was left alone.
    left = machine.instance("other")
    assert left
    assert (left.pid, left.ready) == (other.pid, True)


def test_removing_the_last_service_is_obeyed(machine: Machine, fleet: Fleet) -> None:
    fleet.push_service("chat")
    running = machine.start("-C", fleet.url, "--local")
    chat = machine.wait_ready("chat")

    fleet.push_removal("chat")

    assert chat.pid
    machine.wait_gone("chat", chat.pid)
    assert alive(running.pid)
    wait_for(lambda: not machine.processes())
