"""What is printed within a terminal's width."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import sys
import termios

import pytest

import agent.cli
from agent.cli.commands import COMMANDS as AGENTS_OWN
from reconciler.cli import parser_of
from reconciler.cli.commands import COMMANDS
from reconciler.console.edge import width_of, window_of
from reconciler.report.field_entries import FieldEntry
from reconciler.report.field_text import field_text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("width", [60, 80])
def test_no_line_of_any_help_is_wider_than_the_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys, "stdout", shown := Terminal())

    for command in COMMANDS:
        parser_of(command).print_help(everything=True)
    for command in AGENTS_OWN:
        agent.cli.parser_of(command).print_help(everything=True)

    # argparse keeps what excludes each other in one piece
    lines = [line for line in shown.getvalue().splitlines() if " | " not in line]
    assert [line for line in lines if len(line) > width] == []
    assert any(line.startswith("      ") for line in lines)


def test_the_width_is_that_of_the_stream_that_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 61, 0, 0))
    with os.fdopen(theirs, "w") as narrow, os.fdopen(ours):
        assert width_of(narrow) == 61
    assert width_of(io.StringIO()) is None


@pytest.mark.parametrize("stated", [None, "0", ""])
def test_a_terminal_without_a_size_has_the_usual_one(
    stated: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `script`, CI jobs and `docker exec -t` open one."""
    monkeypatch.delenv("COLUMNS", raising=False)
    if stated is not None:
        monkeypatch.setenv("COLUMNS", stated)
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as unsized, os.fdopen(ours):
        assert os.get_terminal_size(unsized.fileno()) == (0, 0)
        assert width_of(unsized) == 80
        assert window_of(unsized) == (80, 24)


def test_what_is_said_of_a_field_goes_on_below_its_beginning() -> None:
    words = "Tokens of context, shared by all slots: prompts and answers together."
    part = FieldEntry("spec.contextSize", "number", words, "", ())

    text = field_text("InferenceService", part, (part,), 40)

    assert text.endswith(
        "  spec.contextSize: number\n"
        "    Tokens of context, shared by all\n"
        "      slots: prompts and answers\n"
        "      together.\n"
    )
