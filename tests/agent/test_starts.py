"""What a start gives to a process, and what keeps it from being made: with real children."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.process.admission import ADMITS_ALL
from agent.process.holders import holder_of, leftovers, started_of, stranger_on, taken_ports
from agent.process.identity import variable_of
from agent.process.launch import Launch
from agent.process.owner import Processes
from agent.process.records import ProcessRecord, Records
from agent.state.directory import StateDir
from reconciler.fleet.command import KeyPlace
from tests.support.owner import QUICK, launch, service, wait_ready, wait_reason, wait_state
from tests.support.ports import own_port

pytestmark = pytest.mark.e2e


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    return StateDir.open(tmp_path / "state")


@pytest.fixture
def owner(state: StateDir) -> Iterator[Processes]:
    processes = Processes(state, ADMITS_ALL, timing=QUICK)
    processes.start()
    yield processes
    processes.close(stop_children=True, deadline_s=5)


def with_command(of: Launch, **changes: object) -> Launch:
    return replace(of, command=replace(of.command, **changes))  # type: ignore[arg-type]  # fields


def test_a_key_is_in_a_file_and_the_environment_and_is_written_again_from_there(
    owner: Processes, state: StateDir
) -> None:
    copy = state.workload_dir(service("chat")) / "api-key"
    owner.run(with_command(launch("chat", own_port()), key=KeyPlace("TINY_KEY", str(copy))))
    pid = wait_reason(owner, "chat", "KeyNotAsked").pid  # the tiny server asks nobody for it
    assert pid is not None
    key = state.api_key.read_text().strip()
    shutil.rmtree(copy.parent)
    state.api_key.unlink()
    Records(state).remove(service("chat"))

    owner.save_all()

    assert variable_of(pid, "TINY_KEY") == key
    assert copy.read_text() == state.api_key.read_text().strip() == key
    assert [record.launch.ref for record in Records(state).read_all()] == [service("chat")]


def test_a_key_that_was_made_meanwhile_stays(owner: Processes, state: StateDir) -> None:
    copy = state.workload_dir(service("chat")) / "api-key"
    owner.run(with_command(launch("chat", own_port()), key=KeyPlace("TINY_KEY", str(copy))))
    wait_reason(owner, "chat", "KeyNotAsked")
    older = copy.read_text()
    state.api_key.write_text("another")

    owner.save_all()

    assert (copy.read_text(), state.api_key.read_text()) == (older, "another")


def test_a_key_that_cannot_be_used_keeps_its_service_from_starting(
    owner: Processes, state: StateDir
) -> None:
    state.api_key.write_text("two words")
    state.api_key.chmod(0o600)
    copy = state.root / "copy"

    owner.run(with_command(launch("chat", own_port()), key=KeyPlace("TINY_KEY", str(copy))))

    assert "holds no API key" in wait_reason(owner, "chat", "KeyUnusable").message


def test_links_are_made_for_files_and_folders_and_those_of_an_earlier_start_go(
    owner: Processes, state: StateDir, tmp_path: Path
) -> None:
    model, folder = tmp_path / "a.gguf", tmp_path / "weights"
    model.write_text("a")
    folder.mkdir()
    (folder / "part").write_text("b")
    here, wanted = state.workload_dir(service("chat")), launch("chat", own_port())
    (here / "kept").mkdir(parents=True)
    (here / "kept" / "file").write_text("c")

    owner.run(with_command(wanted, links={"one": str(model), "two": str(folder)}))
    first = wait_ready(owner, "chat")
    made = {name: sorted(os.listdir(here / name)) for name in ("two", "kept")}
    assert (here / "one").read_text() == "a"
    assert (here / "two").is_dir()
    assert not (here / "two").is_symlink()
    assert (here / "two" / "part").is_symlink()
    changed = with_command(wanted, links={"other": str(model)})
    owner.run(replace(changed, render_digest="other"))
    wait_state(owner, "chat", lambda found: found.ready and found.pid != first.pid)

    assert made == {"two": ["part"], "kept": ["file"]}
    assert sorted(path.name for path in here.iterdir() if path.name != "llama.cpp") == [
        "kept",
        "other",
    ]


def test_an_address_of_another_machine_is_refused(owner: Processes) -> None:
    owner.run(launch("chat", own_port(), host="192.0.2.1"))

    assert "192.0.2.1" in wait_reason(owner, "chat", "HostIPNotLocal").message


def test_a_port_of_another_service_here_is_waited_for(owner: Processes) -> None:
    port = own_port()
    owner.run(launch("first", port))
    wait_ready(owner, "first")

    owner.run(launch("second", port))
    waits = wait_reason(owner, "second", "WaitsForPort").message
    owner.stop(service("first"))

    assert waits == f"default/first has port {port}"
    assert wait_ready(owner, "second").pid is not None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("preset.ini", "it cannot change single models"),
        ("../preset.ini", "its files cannot be written: '../preset.ini' is not a plain file name"),
    ],
)
def test_a_reload_that_cannot_be_made_ends_in_a_restart(
    owner: Processes, state: StateDir, name: str, said: str
) -> None:
    plain = launch("chat", own_port())
    owner.run(plain)
    first = wait_ready(owner, "chat")

    changed = with_command(plain, files={name: "[tiny]"})
    owner.reload(replace(changed, render_digest="other"), frozenset({"tiny"}))
    wait_state(owner, "chat", lambda found: found.pid != first.pid)

    assert any(said in notice.text for notice in owner.notices())
    folder = state.log_file(service("chat")).parent
    log = "".join(path.read_text() for path in folder.iterdir())
    assert ("--- fleet-reconciler reloads" in log) == (name == "preset.ini")


def test_a_bug_in_a_start_is_said_and_ends_it(state: StateDir) -> None:
    def bug(*_: object) -> None:
        raise RuntimeError("a bug")

    processes = Processes(state, replace(ADMITS_ALL, no_room=bug), timing=QUICK)
    processes.start()
    processes.run(launch("chat", own_port()))
    try:
        found = wait_reason(processes, "chat", "SpawnFailed")
    finally:
        processes.close(stop_children=True, deadline_s=5)

    assert found.message == "a bug in fleet-agent: a bug"


def test_a_copied_state_directory_knows_the_service_and_not_the_process_of_the_first(
    owner: Processes, state: StateDir, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    owner.run(launch("chat", own_port()))
    pid = wait_ready(owner, "chat").pid
    shutil.copytree(state.root, tmp_path / "copy")

    (own,) = Records(state).load()
    (copied,) = Records(StateDir(tmp_path / "copy")).read_all()
    quiet = caplog.text
    Records(StateDir(tmp_path / "copy")).load()

    assert own.child is not None
    assert (own.child.identity.pid, bool(own.marker), bool(own.boot)) == (pid, True, True)
    assert copied.launch == own.launch
    assert (copied.child, copied.marker, copied.boot) == (None, None, "")
    assert str(tmp_path / "copy") not in quiet
    assert str(tmp_path / "copy") in caplog.text


def test_what_was_to_stop_and_has_no_process_is_forgotten(state: StateDir) -> None:
    Records(state).write(ProcessRecord(launch("chat", own_port()), wanted=False, boot="b"))
    processes = Processes(state, ADMITS_ALL, timing=QUICK)

    processes.start()
    left = processes.snapshot(), Records(state).read_all()
    before = processes.why_unwritable()
    shutil.rmtree(state.records)
    after = processes.why_unwritable()
    processes.close(stop_children=True, deadline_s=5)

    assert left == ((), ())
    assert before is None
    assert after == "the state directory cannot be written: No such file or directory"


@pytest.mark.parametrize("revive", [True, False])
def test_what_was_wanted_and_has_no_process_is_started_only_by_who_keeps_it(
    state: StateDir, *, revive: bool
) -> None:
    Records(state).write(ProcessRecord(launch("chat", own_port()), wanted=True, boot="b"))
    processes = Processes(state, ADMITS_ALL, timing=QUICK)

    processes.start(revive=revive)
    try:
        if revive:
            wait_ready(processes, "chat")
        processes.call(lambda: None)
        (found,) = processes.snapshot()
    finally:
        processes.close(stop_children=True, deadline_s=5)

    assert found.ready is revive
    assert (found.pid is None) is not revive


def test_who_has_a_port_is_named_with_what_ends_it(
    owner: Processes, state: StateDir, tmp_path: Path
) -> None:
    port, free = own_port(), own_port()
    owner.run(launch("chat", port))
    pid = wait_ready(owner, "chat").pid
    assert pid is not None
    other = StateDir.open(tmp_path / "other")
    host = "127.0.0.1"

    known = holder_of(other, host, port)
    wanted = [(host, port), (host, free), ("192.0.2.1", port + 1)]
    seen = (
        [taken_ports(other, wanted, own) for own in ((), (port,))],
        taken_ports(state, wanted, ()),
    )
    left = {started.pid for started in leftovers(other)}
    ours = {started.pid for started in leftovers(state)}
    Records(state).remove(service("chat"))
    lost, started = holder_of(other, host, port), started_of(pid)

    assert known is not None
    assert (known.pid, known.state_dir) == (pid, str(state.root))
    assert known.message == (
        f"port {port} is taken by default/chat of the state directory {state.root} (pid {pid}):"
        f" `fleet-agent stop default/chat --state-dir {state.root}` ends it"
    )
    assert seen == ([{port: known}, {}], {})
    assert stranger_on(state, host, port) is None
    assert stranger_on(other, host, free) is None
    assert pid in left - ours
    assert lost is not None
    assert lost.message == (
        f"port {port} is taken by pid {pid}, which was started from {state.root} and has no record"
        f" there: `kill {pid}` ends it"
    )
    assert started is not None
    assert (started.label, started.port) == (None, None)
    assert pid in {each.pid for each in leftovers(state)}
    assert started_of(os.getpid()) is None
