"""What a loop says on a terminal and beside it."""

from __future__ import annotations

import io
import logging
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from agent.cli import main as agent_main
from reconciler.cli import main
from reconciler.cli.console import Console, Screen
from reconciler.cli.progress import ProgressLine, asked_bar, progress_line
from reconciler.console.edge import Exit, tell
from reconciler.core.observation import Observation
from reconciler.core.plan import Plan
from reconciler.loop import Pass
from reconciler.loop.desired import Desired, no_facts
from reconciler.runtimes import RUNTIMES
from reconciler.source.load import load
from tests.support.fleets import MemoryCheckout, node
from tests.support.wait import wait_for

MIB = 2**20


@dataclass(frozen=True)
class Coming:
    model: str
    received_bytes: int = 60 * MIB
    total_bytes: int | None = 240 * MIB
    state: str = "downloading"
    host: str = "https://models.test"

    @property
    def source(self) -> str:
        return f"{self.host}/{self.model}"


TWO = (Coming("gemma-270m"), Coming("qwen-coder-32b", total_bytes=None))


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_a_person_is_told_is_broken_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", terminal := _Terminal())
    monkeypatch.setenv("COLUMNS", "30")

    tell("note: the size of default/gemma-270m is not known yet\nnor is its memory")

    assert terminal.getvalue().splitlines() == [
        "note: the size of",
        "  default/gemma-270m is not",
        "  known yet",
        "nor is its memory",
    ]


@pytest.mark.parametrize("columns", [30, 60, 80, 110, 200])
def test_no_progress_line_is_as_wide_as_the_terminal(columns: int) -> None:
    assert len(progress_line(TWO, columns)) < columns


def test_the_wider_the_terminal_the_more_a_progress_line_says() -> None:
    wide, narrow = progress_line(TWO, 140), progress_line(TWO, 40)

    assert re.match(r"gemma-270m \[(#+)(-+)\] 25 %  60\.0 MiB of 240 MiB   qwen", wide)
    assert narrow == "2 downloads, 120 MiB"


def test_a_progress_line_says_how_fast_and_how_long_where_there_is_room() -> None:
    rates = {TWO[0].source: 12.0 * MIB, TWO[1].source: 2.0 * MIB}

    wide = progress_line(TWO, 160, rates)

    assert "60.0 MiB of 240 MiB, 12.0 MiB/s, 15 s left   qwen" in wide
    assert wide.endswith("60.0 MiB, 2.0 MiB/s")


def test_two_downloads_have_a_bar_a_rate_and_the_time_left_in_80_columns() -> None:
    two = (Coming("qwen3-8b"), Coming("a-name-as-long-as-its-file-has-it-q4-k-m"))

    line = progress_line(two, 80, dict.fromkeys((each.source for each in two), 12.0 * MIB))

    assert len(line) < 80
    assert len(re.findall(r"\[#+-+\] 25 % 12\.0 MiB/s 15 s", line)) == 2


def test_a_download_that_is_done_leaves_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    coming = list(TWO)
    progress = ProgressLine(Screen(), lambda: coming, {TWO[0].source: 240 * MIB}.get)
    wait_for(lambda: len(progress.on_their_way) == 2, "both are seen")

    coming.clear()  # the second was called off
    wait_for(lambda: not progress.on_their_way, "neither is on its way")
    progress.close()

    assert "gemma-270m  downloaded, 240 MiB in " in (said := capsys.readouterr().err)
    assert "qwen" not in said


def test_whoever_ends_a_download_is_told_what_is_kept(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = ProgressLine(Screen(), lambda: TWO, lambda _: None)
    wait_for(lambda: len(progress.on_their_way) == 2, "both are seen")

    progress.close(interrupted=True)

    told = "gemma-270m, qwen-coder-32b  what was fetched is kept, and the next run goes on"
    assert told in capsys.readouterr().err


def test_a_model_that_stays_where_it_lies_is_read_and_not_copied(
    capsys: pytest.CaptureFixture[str],
) -> None:
    coming = [replace(TWO[0], state="verifying", host="file:///models")]
    progress = ProgressLine(Screen(), lambda: coming, lambda _: 240 * MIB)
    wait_for(lambda: len(progress.on_their_way) == 1, "it is seen")

    coming.clear()
    wait_for(lambda: not progress.on_their_way, "it was read")
    progress.close()

    assert "gemma-270m  read where it lies, 240 MiB in " in capsys.readouterr().err


def test_a_file_of_the_fleet_is_copied_and_not_downloaded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    coming = [replace(TWO[0], host="models")]
    progress = ProgressLine(Screen(), lambda: coming, lambda _: 240 * MIB)
    wait_for(lambda: len(progress.on_their_way) == 1, "it is seen")

    coming.clear()
    wait_for(lambda: not progress.on_their_way, "it has come")
    progress.close()

    assert "gemma-270m  copied into the store, 240 MiB in " in capsys.readouterr().err


def test_what_follows_an_interrupt_begins_on_a_line_of_its_own() -> None:
    """A terminal has written ^C where the cursor was."""
    program = (
        "import sys; from reconciler.console.edge import guarded\n"
        "def run(): raise KeyboardInterrupt\n"
        "sys.exit(guarded(run, 'x'))"
    )
    ours, theirs = pty.openpty()

    done = subprocess.run([sys.executable, "-c", program], stderr=theirs, check=False)

    assert done.returncode == 130
    assert os.read(ours, 100) == b"\r\n"
    os.close(ours)
    os.close(theirs)


def desired() -> Desired:
    checkout = MemoryCheckout({"node.yaml": node()})
    loaded = load(checkout, RUNTIMES)
    assert loaded.fleet is not None
    return Desired.of(checkout, loaded, loaded.fleet, no_facts)


def test_a_mistake_that_was_mended_is_acknowledged(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(Screen(), "text")
    first, mended = (desired() for _ in range(2))
    empty = Plan("r1", (), (), (), {}, {})
    before, after = (Pass(each, Observation({}, ()), empty) for each in (first, mended))

    console.on_planned(before)
    console.on_refused("r2", ())
    console.on_planned(before)  # goes on meanwhile
    meanwhile = capsys.readouterr()
    console.on_planned(after)
    console.on_planned(after)

    assert "is valid" not in meanwhile.err
    assert capsys.readouterr().err.count("is valid, and followed") == 1


def test_the_bar_of_headers_is_as_long_as_what_was_read_and_goes_when_all_is() -> None:
    assert asked_bar(0, 4).endswith("-] 0 of 4")
    assert asked_bar(2, 4).count("#") == asked_bar(2, 4).count("-") > 0
    assert asked_bar(4, 4) == ""


@pytest.mark.parametrize(
    ("program", "words"), [(main, "version"), (agent_main, "stop --all --state-dir none")]
)
def test_no_terminal_obeys_a_log_line_of_a_command_that_keeps_no_log(
    program: Callable[[list[str]], int], words: str
) -> None:
    """pytest's own handlers stand in the way of the one that is left then."""
    assert logging.lastResort is not None
    logging.lastResort.setFormatter(None)

    assert program(words.split()) == Exit.OK

    said = logging.makeLogRecord({"msg": "model %s", "args": ("\x1b[31mred",)})
    assert logging.lastResort.format(said) == "model \\x1b[31mred"
