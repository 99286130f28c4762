"""How long every command takes to say its help: `python -m bench.start`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import agent.cli
import agent.cli.commands
import reconciler.cli
import reconciler.cli.commands
from bench.table import RECONCILE, Row, program, show

BUDGET_MS = 150
FLEET_AGENT = (sys.executable, "-c", "from agent.cli import main; raise SystemExit(main())")


def rows() -> Iterator[Row]:
    """Each a process of its own, Python's start included (about 15 ms)."""
    yield program("python itself", (sys.executable, "-c", ""), None, "python -c ''")
    for words in ([], *([name] for name in reconciler.cli.commands.COMMANDS)):
        yield _help("reconcile", RECONCILE, words)
    for words in ([], *([name] for name in agent.cli.commands.COMMANDS)):
        yield _help("fleet-agent", FLEET_AGENT, words)


def _help(name: str, argv: tuple[str, ...], words: list[str]) -> Row:
    shown = " ".join([name, *words, "--help"])
    return program(shown, (*argv, *words, "--help"), BUDGET_MS, "whole process")


if __name__ == "__main__":
    show(rows())
