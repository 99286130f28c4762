"""Other things that people do to a fleet, its files and its machine."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import socket
from pathlib import Path

import psutil
import pytest

from tests.support.client import complete
from tests.support.fleets import model, node, service
from tests.support.gguf_models import tiny_llama
from tests.support.http import FileServer
from tests.support.ports import own_port
from tests.support.reconciler import Fleet, Machine
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e


def test_new_bytes_of_a_model_restart_the_services_that_use_it(
    machine: Machine, fleet: Fleet, tmp_path: Path
) -> None:
    fleet.push_service("chat")
    running = machine.start("-C", fleet.url, "--local")
    before = machine.wait_ready("chat")

    other = tiny_llama(tmp_path / "other.gguf", seed=7)
    fleet.repo.publish({"models/tiny.gguf": other.read_bytes()}, "Train it again")

    after = machine.wait_ready("chat", not_pid=before.pid)
    assert "model.tiny.sha256" in running.out
    digest = hashlib.sha256(other.read_bytes()).hexdigest()
    assert digest in " ".join(psutil.Process(after.pid).cmdline())
    assert after.endpoint
    assert complete(after.endpoint)


def test_a_push_of_other_things_restarts_nothing(machine: Machine, fleet: Fleet) -> None:
    fleet.push_service("chat")
    running = machine.start("-C", fleet.url, "--local")
    before = machine.wait_ready("chat")

    fleet.repo.publish({"README.md": "Nothing of ours", "ci.yaml": "on: push"}, "Write about it")

    running.wait_planned("Plan: nothing to do, 1 unchanged")
    chat = machine.instance("chat")
    assert chat
    assert chat.pid == before.pid


def test_a_suspended_service_stops_and_comes_back(machine: Machine, fleet: Fleet) -> None:
    fleet.push_service("chat")
    running = machine.start("-C", fleet.url, "--local")
    chat = machine.wait_ready("chat")

    fleet.push_service("chat", suspend=True)
    machine.wait_gone("chat", chat.pid)
    assert "services/chat.yaml:6" in running.out

    fleet.push_service("chat")
    again = machine.wait_ready("chat")
    assert again.port == chat.port


def test_an_update_that_cannot_be_fetched_ends_once_with_the_reason_and_is_still_said(
    machine: Machine, fleet: Fleet
) -> None:
    pending = re.compile(r"update pending: DownloadFailed: .*404")
    fleet.push_service("chat")
    assert machine.reconcile("-C", fleet.url, "--local", "--once").code == 0

    with FileServer(b"") as server:
        server.status = 404
        fleet.repo.write("models/gone.yaml", model("gone", source=server.url))
        fleet.push_service("chat", "gone")
        once = ("--once", "--timeout", "3s")  # a host may have it a moment later

        def says_why() -> bool:
            ended = machine.reconcile("-C", fleet.url, "--local", *once)
            assert ended.code == 3
            return bool(pending.search(ended.err))

        wait_for(says_why, "a run for which this machine was quick enough")

    for said in (
        machine.agent("status"),
        machine.reconcile("status", "-C", fleet.url, "--local"),
    ):
        assert pending.search(said.out)
        assert "it is not being fetched" in said.out


def test_without_its_own_node_a_revision_is_held(machine: Machine, fleet: Fleet) -> None:
    fleet.push_service("chat")
    running = machine.start("-C", fleet.url, "--local")
    before = machine.wait_ready("chat")

    (fleet.repo.work / "nodes/here.yaml").unlink()
    fleet.repo.write("nodes/there.yaml", node("there", hardware={"memory": "16Gi"}))
    fleet.repo.commit("Rename the node")

    running.wait_said("has no FleetNode here (it has there): held")
    chat = machine.instance("chat")
    assert chat
    assert (chat.pid, chat.ready) == (before.pid, True)


def test_a_service_that_is_removed_while_its_model_downloads_is_forgotten(
    machine: Machine, fleet: Fleet, tiny: Path
) -> None:
    with FileServer(tiny.read_bytes()) as server:
        server.go_on.clear()
        fleet.repo.write("models/slow.yaml", model("slow", source=server.url))
        fleet.push_service("slow", "slow")
        fleet.push_service("chat")
        running = machine.start("-C", fleet.url, "--local")
        running.wait_said("default/slow  Downloading")
        machine.wait_ready("chat")  # nobody waits for another's download

        fleet.push_removal("slow")
        running.wait_planned("1 to delete")
        server.go_on.set()
        fleet.push_service("last")
        machine.wait_ready("last")

    assert set(machine.instances()) == {"chat", "last"}


def test_a_download_goes_on_after_our_process_was_stopped(
    machine: Machine, fleet: Fleet, tiny: Path
) -> None:
    data = tiny.read_bytes()
    with FileServer(data) as server:
        server.go_on.clear()
        fleet.repo.write("models/slow.yaml", model("slow", source=server.url))
        fleet.push_service("slow", "slow")
        first = machine.start("-C", fleet.url, "--local")
        first.wait_said("default/slow  Downloading")
        wait_for(lambda: _arrived(machine) >= 32 << 10)
        assert first.end() == 0
        server.go_on.set()

        machine.start("-C", fleet.url, "--local")
        slow = machine.wait_ready("slow")

    assert slow.endpoint
    assert complete(slow.endpoint, "slow")
    assert server.ranges[0] is None
    again = server.ranges[-1]
    assert again is not None  # not from the first byte
    assert int(again.removeprefix("bytes=").removesuffix("-")) >= 32 << 10


def test_settings_that_change_before_the_model_is_here_replace_no_process(
    machine: Machine, fleet: Fleet, tiny: Path
) -> None:
    with FileServer(tiny.read_bytes()) as server:
        server.go_on.clear()
        fleet.repo.write("models/slow.yaml", model("slow", source=server.url))
        fleet.push_service("slow", "slow", contextSize=512)
        running = machine.start("-C", fleet.url, "--local")
        running.wait_said("default/slow  Downloading")

        fleet.push_service("slow", "slow", contextSize=1024)
        running.wait_planned("Plan: 1 to create", count=2)
        fleet.push_service("slow", "slow", contextSize=1024, suspend=True)
        running.wait_planned("1 to stop")
        fleet.push_service("slow", "slow", contextSize=2048)
        running.wait_planned("Plan: 1 to create", count=3)
        server.go_on.set()
        slow = machine.wait_ready("slow")

    assert slow.inputs["settings"]["contextSize"] == 2048
    assert "-/+" not in running.out
    assert "downtime" not in running.out


def test_another_source_ends_the_download_of_the_old_one(
    machine: Machine, fleet: Fleet, tiny: Path
) -> None:
    data = tiny.read_bytes()
    with FileServer(data) as hung, FileServer(data) as server:
        hung.go_on.clear()
        for name in ("one", "two"):  # as many as there are slots
            fleet.repo.write(f"models/{name}.yaml", model(name, source=f"{hung.url}?{name}"))
            fleet.push_service(name, name)
        running = machine.start("-C", fleet.url, "--local")
        running.wait_said("default/two  Downloading")
        wait_for(lambda: len(hung.requests) == 2)

        for name in ("one", "two"):
            fleet.repo.write(f"models/{name}.yaml", model(name, source=f"{server.url}?{name}"))
        fleet.repo.commit("Move the models")

        for name in ("one", "two"):
            assert machine.wait_ready(name).ready


def test_a_change_of_model_that_is_taken_back_ends_its_download(
    machine: Machine, fleet: Fleet, tiny: Path
) -> None:
    expected = machine.state / "desired" / "expected.json"
    with FileServer(tiny.read_bytes()) as hung:
        hung.go_on.clear()
        fleet.repo.write("models/slow.yaml", model("slow", source=hung.url))
        fleet.push_service("chat")
        running = machine.start("-C", fleet.url, "--local")
        before = machine.wait_ready("chat")
        fleet.push_service("chat", "slow")
        wait_for(expected.exists)

        fleet.push_service("chat")

        running.wait_planned("Plan: nothing to do, 1 unchanged", count=1)
        wait_for(lambda: not expected.exists())

    assert machine.wait_ready("chat").pid == before.pid


def test_a_download_under_way_is_seen_from_outside_while_its_owner_lives(
    machine: Machine, fleet: Fleet, tiny: Path
) -> None:
    look = ("-C", str(fleet.repo.work), "--dry-run", "--local", "-o", "json")
    with FileServer(tiny.read_bytes()) as server:
        server.go_on.clear()
        fleet.repo.write("models/slow.yaml", model("slow", source=f"{server.url}?sig=c4n4ry"))
        fleet.push_service("slow", "slow")
        running = machine.start("-C", fleet.url, "--local")
        running.wait_said("default/slow  Downloading")

        shown = machine.agent("status")
        status = machine.reconcile("status", "-C", str(fleet.repo.work), "--local")
        beside = machine.reconcile(*look)
        fleet.repo.write("services/slow.yaml", service("slow", "slow", contextSize=1024))
        changed = machine.reconcile(*look)
        running.end(signal.SIGKILL)
        after = machine.agent("status")
        alone = machine.reconcile(*look)

    assert shown.code == status.code == 3
    assert "Downloading" in shown.out
    assert "Downloading" in status.out
    said = (shown.out, status.out, beside.out, changed.out, running.out + running.err)
    assert not [text for text in said if "c4n4ry" in text], "a signature in a URL"
    assert "NotRunning" not in status.out
    assert beside.code == 0
    assert beside.json()["summary"]["unchanged"] == 1
    assert "Downloading" not in after.out
    for plan in (changed, alone):
        assert [c["action"] for c in plan.json()["changes"]] == ["create"]


def test_a_download_that_failed_is_seen_from_outside_with_its_reason(
    machine: Machine, fleet: Fleet, tiny: Path
) -> None:
    with FileServer(tiny.read_bytes()) as server:
        server.status = 503
        fleet.repo.write("models/slow.yaml", model("slow", source=server.url))
        fleet.push_service("slow", "slow")
        machine.start("-C", fleet.url, "--local")

        failed = machine.wait_instance("slow", lambda i: i.reason == "DownloadFailed")
        assert "503" in failed.message
        server.status = None
        machine.wait_ready("slow")

    assert not (machine.state / "desired/expected.json").exists()


def _arrived(machine: Machine) -> int:
    """Bytes of files on their way, without the notes beside them."""
    files = (machine.state / "models/partial").rglob("*")
    return sum(path.stat().st_size for path in files if path.is_file() and ".json" not in path.name)


def test_the_watched_folder_goes_away_and_comes_back(machine: Machine, fleet: Fleet) -> None:
    fleet.push_service("chat")
    work = fleet.repo.work
    running = machine.start("-C", str(work), "--watch")
    before = machine.wait_ready("chat")

    work.rename(work.with_name("away"))
    running.process.send_signal(signal.SIGHUP)
    running.wait_said("unreachable since 20")
    chat = machine.instance("chat")
    assert chat
    assert (chat.pid, chat.ready) == (before.pid, True)

    work.with_name("away").rename(work)
    running.process.send_signal(signal.SIGHUP)
    running.wait_said("the fleet's source answers again")
    fleet.repo.write("services/more.yaml", service("more", "tiny"))
    machine.wait_ready("more")


def test_what_was_remembered_is_damaged_and_nothing_stops(machine: Machine, fleet: Fleet) -> None:
    fleet.push_service("chat")
    first = machine.start("-C", fleet.url, "--local")
    before = machine.wait_ready("chat")
    assert first.end() == 0
    (machine.state / "desired/history.json").write_text('{"half')
    (machine.state / "ports.json").write_text("")

    second = machine.start("-C", fleet.url, "--local")

    second.wait_said("history.json cannot be read")
    second.wait_said("default/chat  already running")
    chat = machine.instance("chat")
    assert chat
    assert (chat.pid, chat.port) == (before.pid, before.port)


def test_a_lost_port_book_moves_no_port_and_a_dry_run_leaves_it_alone(
    machine: Machine, fleet: Fleet
) -> None:
    look = ("-C", fleet.url, "--dry-run", "--local", "-o", "json")
    fleet.push_service("chat", endpoint={"port": own_port()})
    fleet.push_service("more")
    first = machine.start("-C", fleet.url, "--local")
    before = {name: machine.wait_ready(name) for name in ("chat", "more")}
    fleet.push_service("chat", endpoint={})
    before["chat"] = machine.wait_ready("chat", not_pid=before["chat"].pid)
    assert first.end() == 0
    book = machine.state / "ports.json"
    book.write_text('{"half')

    damaged = machine.reconcile(*look)
    assert book.read_text() == '{"half'
    assert not list(machine.state.glob("*.corrupt"))
    book.unlink()
    absent = machine.reconcile(*look)
    assert not book.exists()
    machine.start("-C", fleet.url, "--local")
    fleet.push_service("last")
    machine.wait_ready("last")

    for plan in (damaged, absent):
        assert plan.code == 0
        assert plan.json()["changes"] == []
    assert json.loads(book.read_text())["allocated"].keys() >= {"default/chat", "default/more"}
    for name, was in before.items():
        now = machine.instance(name)
        assert now
        assert (now.pid, now.port) == (was.pid, was.port)


def test_a_port_that_a_neighbour_has_is_refused_and_both_stay_up(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat")
    fleet.push_service("more")
    running = machine.start("-C", fleet.url, "--local")
    chat, more = machine.wait_ready("chat"), machine.wait_ready("more")

    fleet.push_service("more", endpoint={"port": chat.port})
    running.wait_planned(f"port {chat.port} is default/chat's")

    for was in (chat, more):
        now = machine.instance(was.ref.name)
        assert now
        assert (now.pid, now.port, now.ready) == (was.pid, was.port, True)
    book = json.loads((machine.state / "ports.json").read_text())
    assert book["stated"] == {}


def test_a_port_that_a_stranger_has_is_refused_until_it_is_free(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat")
    running = machine.start("-C", fleet.url, "--local")
    chat = machine.wait_ready("chat")

    port = own_port()
    with socket.create_server(("127.0.0.1", port)):
        fleet.push_service("chat", endpoint={"port": port})
        running.wait_planned(f"port {port} is taken by pid {os.getpid()}")
        now = machine.instance("chat")
        assert now
        assert (now.pid, now.port, now.ready) == (chat.pid, chat.port, True)

    moved = machine.wait_ready("chat", not_pid=chat.pid)
    assert moved.port == port


def test_a_lost_mirror_is_fetched_again(machine: Machine, fleet: Fleet) -> None:
    fleet.push_service("chat")
    machine.start("-C", fleet.url, "--local")
    before = machine.wait_ready("chat")

    (machine.root / "cache").rename(machine.root / "old-cache")
    fleet.push_service("more")

    machine.wait_ready("more")
    chat = machine.instance("chat")
    assert chat
    assert chat.pid == before.pid


def test_a_state_directory_that_cannot_be_is_said_in_one_line(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat")
    file = machine.root / "file"
    file.write_text("")

    done = machine.reconcile("-C", fleet.url, "--local", "--once", "--state-dir", f"{file}/state")

    assert done.code == 1
    assert "--state-dir" in done.err
    assert len(done.err.strip().splitlines()) == 1
