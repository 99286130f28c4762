"""How long every command takes to say its help, and a key its completion: `python -m bench.start`.

A command's own words are in the script that a shell keeps. A name is asked of the program.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import agent.cli
import agent.cli.commands
import reconciler.cli
import reconciler.cli.commands
from bench.scale.central import fleet_folder
from bench.table import RECONCILE, Row, program, show

BUDGET_MS = 150
KEY_BUDGET_MS = 100
EACH = 10  # services of a node
FLEET_AGENT = (sys.executable, "-c", "from agent.cli import main; raise SystemExit(main())")


def rows() -> Iterator[Row]:
    """Each a process of its own, Python's start included (about 15 ms)."""
    yield program("python itself", (sys.executable, "-c", ""), None, "python -c ''")
    for words in ([], *([name] for name in reconciler.cli.commands.COMMANDS)):
        yield _help("reconcile", RECONCILE, words)
    for words in ([], *([name] for name in agent.cli.commands.COMMANDS)):
        yield _help("fleet-agent", FLEET_AGENT, words)
    yield from keys()


def keys() -> Iterator[Row]:
    for nodes in (1, 300):
        with tempfile.TemporaryDirectory() as folder:
            fleet = fleet_folder(Path(folder) / "fleet", nodes, 1, each=EACH)
            words = ("completion", "--names", "service,model,node")
            argv = ("sh", "-c", 'cd "$0" && exec "$@"', str(fleet), *RECONCILE, *words)
            what = f"a key: names of {nodes} nodes and {nodes * EACH:,} services"
            yield program(what, argv, KEY_BUDGET_MS, "whole process, in the fleet's folder")


def _help(name: str, argv: tuple[str, ...], words: list[str]) -> Row:
    shown = " ".join([name, *words, "--help"])
    return program(shown, (*argv, *words, "--help"), BUDGET_MS, "whole process")


if __name__ == "__main__":
    show(rows())
