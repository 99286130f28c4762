"""What happens when something breaks: a process, a model, a port, a remote."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.support.client import complete
from tests.support.fleets import model, service
from tests.support.http import FileServer
from tests.support.ports import own_port
from tests.support.reconciler import Fleet, Machine, Running

pytestmark = pytest.mark.e2e


def test_a_killed_process_comes_back_on_its_port_after_a_pause(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat")
    running = machine.start("-C", fleet.url, "--local")
    before = machine.wait_ready("chat")
    assert before.pid
    assert before.endpoint

    os.kill(before.pid, signal.SIGKILL)
    killed_at = time.monotonic()

    running.wait_said("KilledBySignal")
    after = machine.wait_ready("chat", not_pid=before.pid)
    assert time.monotonic() - killed_at >= 0.9  # the first pause is a second
    assert after.port == before.port
    assert complete(before.endpoint)


def test_a_model_that_the_engine_cannot_load_is_named_and_not_retried_in_a_tight_loop(
    machine: Machine, fleet: Fleet, tiny: Path
) -> None:
    # Offline, no header is known before a file of a host is there.
    with FileServer(tiny.read_bytes()[: tiny.stat().st_size // 2]) as half:
        fleet.repo.write("models/half.yaml", model("half", source=half.url))
        fleet.push_service("good")
        fleet.push_service("broken", "half")
        running = machine.start("-C", fleet.url, "--local")

        good = machine.wait_ready("good")
        running.wait_said("ModelCorrupt")

        tries, logged = _tries(running), _log_size(machine)
        for name in ("more", "another"):  # each has the loop pass over everything
            fleet.push_service(name)
            machine.wait_ready(name)
        assert _tries(running) == tries
        assert _log_size(machine) == logged  # the engine was not started once more
        still = machine.instance("good")
        assert still
        assert (still.pid, still.ready) == (good.pid, True)


def _tries(running: Running) -> int:
    return running.err.count("ModelCorrupt")  # each plan names it once, on stdout


def _log_size(machine: Machine) -> int:
    logs = machine.state.glob("logs/*broken/current.log")
    return sum(path.stat().st_size for path in logs)


def test_what_runs_is_not_stopped_for_a_successor_that_no_disk_takes(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat")
    running = machine.start("-C", fleet.url, "--local")
    before = machine.wait_ready("chat")
    assert before.pid
    assert before.endpoint
    records, away = machine.state / "records", machine.state / "full"
    records.rename(away)  # a full disk that root meets, too

    fleet.push_service("chat", contextSize=512)
    running.wait_said("StateUnwritable")

    assert complete(before.endpoint), "it answers as before"
    away.rename(records)
    assert machine.wait_ready("chat", not_pid=before.pid).pid


def test_a_taken_port_is_named_with_its_owner_and_taken_once_it_is_free(
    machine: Machine, fleet: Fleet
) -> None:
    port = own_port()  # nobody else's afterwards, as one may be that the system chose
    with socket.create_server(("127.0.0.1", port)):
        fleet.push_service("chat", endpoint={"port": port})
        running = machine.start("-C", fleet.url, "--local")

        running.wait_planned("PortInUse")
        line = next(line for line in running.out.splitlines() if "PortInUse" in line)
        assert str(port) in line
        assert f"pid {os.getpid()}" in line
        assert machine.processes() == []

    chat = machine.wait_ready("chat")
    assert chat.port == port


def test_a_remote_that_is_gone_stops_nothing_and_is_missed_since_a_stated_time(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat")
    running = machine.start("-C", fleet.url, "--local")
    before = machine.wait_ready("chat")

    away = fleet.repo.remote.with_name("away.git")
    fleet.repo.remote.rename(away)
    running.wait_said("unreachable since 20")
    assert "what runs stays as it is" in running.err
    assert before.endpoint
    assert complete(before.endpoint)

    away.rename(fleet.repo.remote)
    running.wait_said("the fleet's source answers again")
    fleet.push_service("more")
    machine.wait_ready("more")
    chat = machine.instance("chat")
    assert chat
    assert chat.pid == before.pid


def test_without_its_remote_a_restarted_program_runs_what_was_applied_last(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat")
    first = machine.start("-C", fleet.url, "--local", "--stop-on-exit")
    machine.wait_ready("chat")
    assert first.end() == 0
    fleet.repo.remote.rename(fleet.repo.remote.with_name("away.git"))

    second = machine.start("-C", fleet.url, "--local")

    machine.wait_ready("chat")
    second.wait_said("unreachable since 20")


def test_an_older_head_is_held_and_a_rewritten_history_is_followed_and_said(
    machine: Machine, fleet: Fleet, tmp_path: Path
) -> None:
    fleet.push_service("chat", contextSize=1024)
    stale = tmp_path / "stale.git"
    shutil.copytree(fleet.repo.remote, stale)
    fleet.push_service("chat", contextSize=2048)
    running = machine.start("-C", fleet.url, "--local")
    before = machine.wait_ready("chat")

    # The remote is restored from an old copy.
    fleet.repo.remote.rename(tmp_path / "newer.git")
    stale.rename(fleet.repo.remote)
    running.wait_said("which is applied: held")
    chat = machine.instance("chat")
    assert chat
    assert chat.pid == before.pid

    # Somebody forces another history on it.
    fleet.repo.git("reset", "-q", "--hard", "HEAD~1")
    fleet.repo.write("services/chat.yaml", service("chat", "tiny", contextSize=4096))
    fleet.repo.commit("Another way", force=True)
    running.wait_said("was rewritten")
    machine.wait_ready("chat", not_pid=before.pid)
