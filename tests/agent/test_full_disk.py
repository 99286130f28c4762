"""Engine logs and stops on a disk that is full, with real file systems and real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.byhand import requests
from agent.byhand.stopped import Stopped, read_stopped
from agent.process import logs
from agent.process.log_keeper import leave_behind
from agent.process.logreader import LogReader
from agent.state.directory import StateDir
from agent.state.room import LOG_CAP_BYTES, rotate
from reconciler.api.errors import StateError
from tests.support.builders import ref
from tests.support.pids import alive
from tests.support.small_disk import small_disk
from tests.support.wait import wait_for

DISK = 30 << 20


@pytest.fixture
def full(tmp_path: Path) -> Iterator[StateDir]:
    """A state directory on a disk of 30 MiB, with older logs."""
    with small_disk(tmp_path / "disk", DISK) as disk:
        state = StateDir.open(disk / "state")
        log = state.log_file(ref("chat"))
        os.close(logs.open_log(log, "m"))
        for number in (1, 2, 3):
            log.with_name(f"current.log.{number}").write_text(f"older {number}")
        yield state


def fill(path: Path) -> None:
    with path.open("ab", buffering=0) as file:
        while True:
            try:
                file.write(b"a line of an engine that nobody watches\n" * 100)
            except OSError:
                return


def free(state: StateDir) -> int:
    disk = os.statvfs(state.root)
    return disk.f_bavail * disk.f_frsize


def test_a_log_that_filled_the_disk_is_cut_and_the_older_ones_stay(full: StateDir) -> None:
    log = full.log_file(ref("chat"))
    fill(log)

    assert rotate(log)

    assert free(full) > DISK - (1 << 20)
    assert set(LogReader(log).last(9)[1:]) == {b"a line of an engine that nobody watches"}
    older = [log.with_name(f"current.log.{number}").read_text() for number in (1, 2, 3)]
    assert older == ["older 1", "older 2", "older 3"]
    assert not rotate(log)


def test_a_stop_by_hand_finds_room_on_a_full_disk(
    full: StateDir, caplog: pytest.LogCaptureFixture
) -> None:
    full.lock()
    fill(full.log_file(ref("chat")))

    request = requests.ask(full, requests.STOP, [ref("chat")])  # by cutting the log
    Stopped(full).add({ref("chat"): "digest"}, {})

    assert not request.taken
    assert read_stopped(full) == {ref("chat"): "digest"}
    (line,) = (record.getMessage() for record in caplog.records)
    assert "the disk is full: 2" in line
    fill(full.root / "of somebody else")
    requests.ask(full, requests.STOP, [ref("chat")])  # from the reserve
    Stopped(full).add({ref("chat"): "digest", ref("more"): "digest"}, {})
    assert read_stopped(full).keys() == {ref("chat"), ref("more")}

    assert not full.keep()
    (full.root / "of somebody else").unlink()
    assert not full.keep()  # a later pass of the owner, with room again
    fill(full.root / "of somebody else")
    requests.ask(full, requests.STOP, [ref("more")])


def test_a_start_leaves_the_reserve_to_stops_and_names_what_may_go(full: StateDir) -> None:
    full.lock()
    old = full.log_file(ref("chat")).with_name("current.log.1")
    old.write_bytes(b"x" * (2 << 20))
    fill(full.root / "of somebody else")

    why = full.why_unwritable()

    assert why == (
        "the state directory cannot be written: No space left on device; the largest that may go:"
        f" an old log of 2.0 MiB (`rm {old}`)"
    )
    with pytest.raises(StateError):
        requests.ask(full, requests.RESTART, [ref("chat")])
    requests.ask(full, requests.STOP, [ref("chat")])
    subprocess.run(["sh", "-c", f"rm {old}"], check=True)
    assert full.why_unwritable() is None


def test_every_log_is_for_its_owner_only(tmp_path: Path) -> None:
    log = StateDir.open(tmp_path).log_file(ref("chat"))
    os.close(logs.open_log(log, "m"))
    log.write_bytes(b"x\n" * 100)
    log.with_name("current.log.1").touch(0o644)  # as earlier versions made it
    log.with_name("current.log.2").touch(0o644)
    StateDir.open(tmp_path)
    assert rotate(log, cap_bytes=100)

    modes = {path.name: path.stat().st_mode & 0o777 for path in log.parent.iterdir()}
    assert modes == {f"current.log{suffix}": 0o600 for suffix in ("", ".1", ".2", ".3")}


def test_logs_stay_within_their_limit_without_an_agent_until_the_last_engine_ends(
    tmp_path: Path,
) -> None:
    state = StateDir.open(tmp_path / "state")
    log = state.log_file(ref("chat"))
    os.close(logs.open_log(log, "m"))
    engines = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1) for _ in range(2)]
    keeper = leave_behind(state.root, [engine.pid for engine in engines])
    assert keeper
    log.write_bytes(b"x" * (LOG_CAP_BYTES + 1))

    wait_for(lambda: log.stat().st_size < LOG_CAP_BYTES, "the log is rotated")
    engines[0].communicate(b"\n")
    assert alive(keeper)
    engines[1].communicate(b"\n")

    wait_for(lambda: not alive(keeper), "it ends with the last engine")


def test_another_owner_of_the_state_directory_ends_the_keeper(tmp_path: Path) -> None:
    state = StateDir.open(tmp_path / "state")
    state.lock()
    engine = subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1)
    keeper = leave_behind(state.root, [engine.pid], owner=1)
    assert keeper

    wait_for(lambda: not alive(keeper), "it leaves the logs to the owner")
    engine.communicate(b"\n")
