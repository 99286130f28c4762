"""Our own process ends, by accident or on purpose, and the models go on answering."""

from __future__ import annotations

import signal
import time

import pytest

from tests.support.client import asking, complete
from tests.support.pids import alive
from tests.support.reconciler import Fleet, Machine
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e


def test_after_a_sigkill_the_model_keeps_answering_and_is_adopted(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat")
    first = machine.start("-C", fleet.url, "--local")
    before = machine.wait_ready("chat")
    assert before.endpoint
    assert before.pid

    with asking(before.endpoint) as seen:
        first.end(signal.SIGKILL)
        second = machine.start("-C", fleet.url, "--local")
        second.wait_said("default/chat  already running at http://")
        enough = seen.answers + 5
        wait_for(lambda: seen.answers >= enough)

    assert seen.failures == []
    adopted = machine.instance("chat")
    assert adopted
    assert (adopted.pid, adopted.ready) == (before.pid, True)
    second.wait_planned("1 unchanged")  # nothing to do

    # It is owned again: a push changes it.
    fleet.push_service("chat", contextSize=1024)
    machine.wait_ready("chat", not_pid=before.pid)
    wait_for(lambda: not alive(before.pid or 0))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_the_models_running(
    machine: Machine, fleet: Fleet, number: signal.Signals
) -> None:
    fleet.push_service("chat")
    running = machine.start("-C", fleet.url, "--local")
    chat = machine.wait_ready("chat")
    assert chat.endpoint
    running.wait_said("default/chat  ready")  # by its own word, too

    code = running.end(number)

    assert code == (130 if number is signal.SIGINT else 0)
    assert complete(chat.endpoint)

    # What was left running can be seen and stopped without us.
    status = machine.agent("status", "-o", "json")
    assert status.code == 0
    service = status.json()["services"][0]
    assert service["placements"][0]["pid"] == chat.pid
    left = f"left running: default/chat at {chat.endpoint}; `fleet-agent "
    said = running.err.partition(left)[2].partition("` ends it")[0]
    stopped = machine.agent(*said.split())
    assert stopped.code == 0
    assert machine.processes() == []
    (left,) = machine.agent("status", "-o", "json").json()["services"]
    assert (left["reason"], left["placements"]) == ("StoppedByHand", [])


def test_stop_on_exit_stops_the_models_too(machine: Machine, fleet: Fleet) -> None:
    fleet.push_service("chat")
    fleet.push_service("more")
    running = machine.start("-C", fleet.url, "--local", "--stop-on-exit")
    machine.wait_ready("chat")
    machine.wait_ready("more")

    assert running.end() == 0

    assert machine.processes() == []
    assert machine.instances() == {}


def test_a_hangup_fetches_at_once(machine: Machine, fleet: Fleet) -> None:
    running = machine.start("-C", fleet.url, "--local", "--interval", "10m")
    running.wait_planned("Plan: ")
    fleet.push_service("chat")

    running.process.send_signal(signal.SIGHUP)

    machine.wait_ready("chat")


def test_a_second_program_on_one_state_directory_is_refused_with_the_pid_of_the_first(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat")
    running = machine.start("-C", fleet.url, "--local")
    chat = machine.wait_ready("chat")

    second = machine.reconcile("-C", fleet.url, "--local", "--once")

    assert second.code == 1
    assert f"already in use by pid {running.pid}" in second.err
    assert "--state-dir" in second.err
    now = machine.instance("chat")
    assert now
    assert (now.pid, now.ready) == (chat.pid, True)


def test_a_service_that_died_while_nobody_watched_comes_back(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat")
    first = machine.start("-C", fleet.url, "--local")
    before = machine.wait_ready("chat")
    first.end(signal.SIGKILL)
    for process in machine.processes():
        process.kill()
    wait_for(lambda: not machine.processes())
    gone = machine.reconcile("status", "-C", fleet.url, "--local", "-o", "json")
    assert gone.code == 3
    assert gone.json()["services"][0]["ready"] is False
    said = machine.agent("status").out
    assert "ProcessGone" in said
    assert "Ready" not in said

    began = time.monotonic()
    machine.start("-C", fleet.url, "--local")

    after = machine.wait_ready("chat", not_pid=before.pid)
    assert after.port == before.port
    assert time.monotonic() - began >= 0.9  # it failed once: the first pause is a second
