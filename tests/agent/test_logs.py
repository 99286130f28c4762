"""`fleet-agent logs`: the end of an engine's log, and what is added to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.cli import main
from agent.process.logreader import LogFile, LogReader
from agent.state.directory import StateDir
from agent.state.room import rotate
from reconciler.console.logview import show
from tests.support.builders import ref
from tests.support.wait import PATIENCE_S, wait_for

AGENT = Path(sys.executable).parent / "fleet-agent"


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    return StateDir.open(tmp_path / "state")


@pytest.fixture
def log(state: StateDir) -> Path:
    path = state.log_file(ref("chat"))
    path.parent.mkdir()
    return path


def logs_of(state: StateDir, *words: str) -> int:
    return main(["logs", *words, "--state-dir", str(state.root)])


def test_the_end_of_a_log_is_printed_with_what_was_rotated_away_from_it(
    state: StateDir, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.with_name("current.log.2").write_text("one\ntwo\n")
    log.with_name("current.log.1").write_text("three\nfour\n")
    log.write_text("five\n\x1b[2Jsix")

    codes = [logs_of(state, "chat", "-n", n) for n in ("0", "2", "4", "100")]

    assert codes == [0, 0, 0, 0]
    assert capsys.readouterr().out.split() == [
        *("four", "five", r"\x1b[2Jsix"),
        *("two", "three", "four", "five", r"\x1b[2Jsix"),
        *("one", "two", "three", "four", "five", r"\x1b[2Jsix"),
    ]


def test_the_run_before_the_last_start_is_found_by_its_marks(
    state: StateDir, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mark = "--- fleet-reconciler starts"
    log.with_name("current.log.1").write_text(f"{mark} a\nold\n{mark} b\nwhy\n")
    log.write_text(f"it ended\n{mark} c\nruns\nnow")

    assert logs_of(state, "chat", "--previous") == 0
    assert logs_of(state, "chat", "--previous", "--tail", "1") == 0

    assert capsys.readouterr().out == f"{mark} b\nwhy\nit ended\nit ended\n"


def test_the_end_of_a_log_costs_nothing_of_what_lies_before(
    state: StateDir, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with log.open("wb") as file:
        file.truncate(10 << 30)
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + b"last\n" * 200)
    read = Path("/proc/self/io")
    before = read.read_text().split()[1] if read.exists() else "0"

    assert logs_of(state, "chat") == 0

    after = read.read_text().split()[1] if read.exists() else "0"
    assert capsys.readouterr().out == "last\n" * 100
    assert int(after) - int(before) < 10 << 20


def test_lines_of_several_places_each_begin_with_theirs(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write_text("one\ntwo\n")

    assert show({"mac": LogFile(log, 1), "gpu-1": LogFile(log, 2)}) == 0

    assert sorted(capsys.readouterr().out.splitlines()) == [
        "gpu-1  one",
        "gpu-1  two",
        "mac    two",
    ]


def test_a_name_that_has_no_log_is_answered_with_those_that_have(
    state: StateDir, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert logs_of(state, "caht") == 64

    said = capsys.readouterr()
    assert said.out == ""
    assert 'not started here (did you mean "default/chat"?); there is default/chat' in said.err


def test_a_service_that_was_not_started_yet_is_said_to_have_no_log(
    state: StateDir, capsys: pytest.CaptureFixture[str]
) -> None:
    (state.desired / "stopped.json").write_text(
        '[{"ref": ["InferenceService", "default", "chat"], "inputsDigest": "d"}]'
    )

    assert logs_of(state, "chat") == 3

    assert "default/chat: no log yet" in capsys.readouterr().err


def test_no_line_is_lost_or_said_twice_when_a_log_is_rotated_between_two_looks(
    log: Path,
) -> None:
    reader, written = LogReader(log), lines()
    seen: list[bytes] = []

    def write(count: int) -> None:
        with log.open("ab") as file:
            file.writelines(next(written) for _ in range(count))

    write(100)
    seen += reader.last(1000)
    for _ in range(3):
        write(50)
        seen += reader.more()
        write(20)  # seen by nobody before the file is cut
        assert rotate(log, cap_bytes=10_000)
        write(5)
        seen += reader.more()

    assert seen == [line.rstrip() for line, _ in zip(lines(), range(325), strict=False)]


def test_a_line_is_followed_whole(log: Path) -> None:
    reader = LogReader(log)
    assert reader.last(10) == reader.more() == []
    log.write_bytes(b"half")

    assert reader.more() == []
    assert reader.open_line == b"half"
    with log.open("ab") as file:
        file.write(b" and half\nthen")
    assert reader.more() == [b"half and half"]


def test_a_log_is_followed_until_ctrl_c(state: StateDir, log: Path, tmp_path: Path) -> None:
    log.write_text("before\n")
    out, err = tmp_path / "out", tmp_path / "err"
    words = (str(AGENT), "logs", "chat", "-f", "--state-dir", str(state.root))
    with out.open("wb") as stdout, err.open("wb") as stderr:
        command = subprocess.Popen(words, stdout=stdout, stderr=stderr)
    try:
        wait_for(lambda: out.read_text() == "before\n")
        with log.open("a") as file:
            file.write("after\nrest")
        wait_for(lambda: out.read_text() == "before\nafter\n")
        command.send_signal(signal.SIGINT)
        code = command.wait(timeout=PATIENCE_S)
    finally:
        command.kill()

    assert code == 130
    assert out.read_text() == "before\nafter\nrest\n"
    assert err.read_text() == ""


def lines() -> Iterator[bytes]:
    for number in range(10_000):
        yield f"line {number}{'.' * 190}\n".encode()
