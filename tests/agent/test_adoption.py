"""What an owner does with the processes that an earlier one left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.process.admission import ADMITS_ALL
from agent.process.identity import MARKER_VARIABLE, identity_of
from agent.process.launch import Phase
from agent.process.owner import Processes
from agent.process.ports import can_bind
from agent.process.records import Records
from agent.state.directory import StateDir
from reconciler.api.errors import StateError
from tests.support import servers
from tests.support.owner import (
    BACKOFF_S,
    LONGEST_BACKOFF_S,
    QUICK,
    MovedClock,
    get,
    launch,
    post,
    service,
    state_of,
    wait_gone,
    wait_ready,
    wait_reason,
    wait_state,
)
from tests.support.pids import alive
from tests.support.ports import own_port
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e
Start = Callable[[], Processes]


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    return StateDir.open(tmp_path / "state")


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


@pytest.fixture
def start(state: StateDir, clock: MovedClock) -> Iterator[Start]:
    """Starts one owner after another on the same directory; the last one stops what runs."""
    owners: list[Processes] = []

    def make() -> Processes:
        owners.append(Processes(state, ADMITS_ALL, clock=clock, timing=QUICK))
        owners[-1].start()
        return owners[-1]

    yield make
    for owner in owners:
        owner.close(stop_children=True, deadline_s=5)


def killed_owner(state: StateDir, *services: str) -> dict[str, int]:
    """Let another process own these services, and kill it with SIGKILL: pids by name."""
    owner = subprocess.Popen(
        [sys.executable, "-m", "tests.support.owner", str(state.root), *services],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert owner.stdout is not None
    pids = {word.partition(":")[0]: int(owner.stdout.readline()) for word in services}
    assert owner.stdout.readline().startswith("ready")
    with pytest.raises(StateError, match=f"in use by pid {owner.pid}"):
        state.lock()
    owner.kill()
    owner.wait()
    owner.stdout.close()
    return pids


def edit_record(state: StateDir, name: str, change: Callable[[dict[str, Any]], None]) -> None:
    file = state.record_file(service(name))
    record = json.loads(file.read_text())
    change(record)
    file.write_text(json.dumps(record))


def test_models_outlive_a_killed_owner_and_are_adopted(
    state: StateDir, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "agent.process.adoption")
    one, two = own_port(), own_port()
    pids = killed_owner(state, f"one:{one}", f"two:{two}")
    answered = get(one, "/health"), get(two, "/health")
    since = {r.launch.ref.name: r.ready_since for r in Records(state).read_all()}

    state.lock()  # children do not hold it
    owner = start()
    adopted = {name: wait_ready(owner, name) for name in ("one", "two")}
    state.unlock()

    assert answered == ({"status": "ok"}, {"status": "ok"})
    assert {name: found.pid for name, found in adopted.items()} == pids
    assert all(found.adopted and found.start_seconds for found in adopted.values())
    assert {name: found.since for name, found in adopted.items()} == since
    assert [line for line in caplog.messages if "adopted" in line] == [
        f"default/{name}: adopted pid {pid}: its pid, start time and marker are those of its record"
        for name, pid in sorted(pids.items())
    ]


def test_an_adopted_process_is_stopped_like_an_own_one(state: StateDir, start: Start) -> None:
    pids = killed_owner(state, f"chat:{own_port()}")
    owner = start()
    wait_ready(owner, "chat")

    owner.stop(service("chat"))
    wait_gone(owner, "chat")

    assert not alive(pids["chat"])


def test_a_stop_right_after_adoption_still_drains(state: StateDir, start: Start) -> None:
    port = own_port()
    pids = killed_owner(state, f"chat:{port}")
    post(port, "/busy/1")

    owner = start()
    owner.stop(service("chat"))
    wait_state(owner, "chat", lambda s: s.message.startswith("waiting for 1 request"))
    still_there = alive(pids["chat"])
    post(port, "/busy/0")
    wait_gone(owner, "chat")

    assert still_there


def test_an_owner_that_came_to_stop_something_starts_nothing(
    state: StateDir, clock: MovedClock
) -> None:
    pids = killed_owner(state, f"down:{own_port()}", f"up:{own_port()}")
    os.kill(pids["down"], signal.SIGKILL)
    wait_for(lambda: not alive(pids["down"]))
    before = state.record_file(service("down")).read_bytes()
    owner = Processes(state, ADMITS_ALL, clock=clock, timing=QUICK)

    owner.start(revive=False)
    clock.passed_s += LONGEST_BACKOFF_S
    owner.stop(service("up"))
    wait_gone(owner, "up")
    down = state_of(owner, "down")
    owner.close(stop_children=False)

    assert down is not None
    assert down.phase is Phase.WAITING
    assert state.record_file(service("down")).read_bytes() == before


def test_running_an_adopted_launch_changes_nothing(state: StateDir, start: Start) -> None:
    port = own_port()
    pids = killed_owner(state, f"chat:{port}")
    owner = start()

    owner.run(launch("chat", port))
    found = wait_ready(owner, "chat")

    assert found.pid == pids["chat"]


def test_the_death_of_an_adopted_process_is_seen_and_has_no_exit_code(
    state: StateDir, start: Start, clock: MovedClock
) -> None:
    pids = killed_owner(state, f"chat:{own_port()}")
    owner = start()
    wait_ready(owner, "chat")

    os.kill(pids["chat"], signal.SIGKILL)
    down = wait_state(owner, "chat", lambda s: s.phase is Phase.WAITING)
    clock.passed_s += BACKOFF_S
    owner.call(lambda: None)
    after = wait_ready(owner, "chat")

    assert (down.reason, down.exit_code, down.failures) == ("Exited", None, 1)
    assert (after.pid != pids["chat"], after.adopted) == (True, False)


def test_a_process_that_died_meanwhile_is_started_again_after_the_backoff(
    state: StateDir, start: Start, clock: MovedClock
) -> None:
    pids = killed_owner(state, f"chat:{own_port()}")
    os.kill(pids["chat"], signal.SIGKILL)
    wait_for(lambda: not alive(pids["chat"]))

    owner = start()
    down = state_of(owner, "chat")
    clock.passed_s += BACKOFF_S
    owner.call(lambda: None)
    after = wait_ready(owner, "chat")

    assert down is not None
    assert (down.phase, down.failures, down.exit_code) == (Phase.WAITING, 1, None)
    assert after.pid != pids["chat"]


def test_a_child_whose_pid_was_never_recorded_is_found_by_its_marker(
    state: StateDir, start: Start
) -> None:
    pids = killed_owner(state, f"chat:{own_port()}")

    def forget_pid(record: dict[str, Any]) -> None:
        record["process"] = None

    edit_record(state, "chat", forget_pid)  # as after a crash between spawn and record
    owner = start()
    found = wait_ready(owner, "chat")

    assert found.pid == pids["chat"]


def test_an_intent_without_a_process_starts_one_at_once(state: StateDir, start: Start) -> None:
    pids = killed_owner(state, f"chat:{own_port()}")

    def never_spawned(record: dict[str, Any]) -> None:
        record["process"], record["marker"] = None, "0" * 32

    edit_record(state, "chat", never_spawned)
    os.kill(pids["chat"], signal.SIGKILL)
    wait_for(lambda: not alive(pids["chat"]))
    owner = start()

    assert wait_ready(owner, "chat").failures == 0


@pytest.mark.parametrize("lie", ["started", "boot", "marker"])
def test_a_stranger_with_a_recorded_pid_is_never_touched(
    state: StateDir, start: Start, lie: str
) -> None:
    port = own_port()
    stranger = subprocess.Popen(
        servers.argv(port),
        start_new_session=True,
        env={**os.environ, MARKER_VARIABLE: "f" * 32},
    )
    identity = identity_of(stranger.pid)
    assert identity is not None
    record = {
        "pid": stranger.pid,
        "started": "1" if lie == "started" else identity.started,
        "boot": "another" if lie == "boot" else identity.boot,
        "spawnedAt": 0.0,
    }
    wait_for(lambda: not can_bind("127.0.0.1", port))
    first = start()
    first.run(launch("chat", port))  # the stranger even has our port
    wait_reason(first, "chat", "PortInUse")
    first.close(stop_children=False)

    def point_at_stranger(document: dict[str, Any]) -> None:
        document["process"] = record
        document["marker"] = "e" * 32 if lie == "marker" else "f" * 32

    edit_record(state, "chat", point_at_stranger)
    second = start()
    found = wait_state(second, "chat", lambda s: s.phase is Phase.WAITING)
    second.stop(service("chat"))
    wait_gone(second, "chat")
    untouched = stranger.poll() is None
    stranger.kill()
    stranger.wait()

    assert found.pid is None
    assert untouched


def test_a_stop_that_was_asked_for_is_carried_on(state: StateDir, start: Start) -> None:
    pids = killed_owner(state, f"chat:{own_port()}")

    def unwanted(record: dict[str, Any]) -> None:
        record["wanted"] = False

    edit_record(state, "chat", unwanted)
    owner = start()
    wait_gone(owner, "chat")

    assert not alive(pids["chat"])


def test_after_a_reboot_services_start_at_once(state: StateDir, start: Start) -> None:
    pids = killed_owner(state, f"chat:{own_port()}")

    def rebooted(record: dict[str, Any]) -> None:
        record["boot"] = record["process"]["boot"] = "the one before"
        record["failures"] = 7

    os.kill(pids["chat"], signal.SIGKILL)
    wait_for(lambda: not alive(pids["chat"]))
    edit_record(state, "chat", rebooted)
    owner = start()

    assert wait_ready(owner, "chat").failures == 0


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"null", b'{"version": 0}', b"\xff\x00"])
def test_a_damaged_record_is_moved_aside_and_the_others_go_on(
    state: StateDir, start: Start, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    pids = killed_owner(state, f"chat:{own_port()}")
    bad = state.record_file(service("bad"))
    bad.write_bytes(damage)

    owner = start()
    found = wait_ready(owner, "chat")

    assert found.pid == pids["chat"]
    assert not bad.exists()
    assert bad.with_name("default_bad.json.corrupt").read_bytes() == damage
    assert "default_bad.json cannot be read" in caplog.text


@pytest.mark.parametrize("is_readable", [True, False])
def test_a_record_of_a_newer_version_is_read_as_far_as_it_goes_and_never_called_damaged(
    state: StateDir, start: Start, is_readable: bool, caplog: pytest.LogCaptureFixture
) -> None:
    pids = killed_owner(state, f"chat:{own_port()}")
    file = state.record_file(service("chat"))
    data = json.loads(file.read_bytes()) | {"version": 2, "new": [1]}
    if not is_readable:
        del data["launch"]
    file.write_text(json.dumps(data))

    owner = start()

    assert list(state.records.glob("*.corrupt")) == []
    if is_readable:
        assert wait_ready(owner, "chat").pid == pids["chat"]
    else:
        assert "written by a newer version" in caplog.text
        assert json.loads(file.read_bytes()) == data
        assert alive(pids["chat"])
        os.kill(pids["chat"], signal.SIGKILL)  # nobody owns it


def test_a_failure_count_survives_our_own_restart(
    state: StateDir, start: Start, clock: MovedClock
) -> None:
    owner = start()
    owner.run(launch("chat", own_port(), "--print", "invalid magic", "--exit-code", "1"))
    wait_reason(owner, "chat", "ModelCorrupt")
    owner.close(stop_children=False)

    again = start()
    clock.passed_s += LONGEST_BACKOFF_S - BACKOFF_S
    again.call(lambda: None)

    still = state_of(again, "chat")
    assert still is not None
    assert (still.reason, still.failures, still.pid) == ("ModelCorrupt", 1, None)


def test_a_record_reads_back_as_it_was_written(state: StateDir, start: Start) -> None:
    port = own_port()
    owner = start()
    owner.run(launch("chat", port))
    found = wait_ready(owner, "chat")

    (record,) = Records(state).read_all()

    assert record.launch == launch("chat", port)
    assert record.wanted
    assert record.child is not None
    assert record.child.identity.pid == found.pid
    assert record.start_seconds == found.start_seconds
