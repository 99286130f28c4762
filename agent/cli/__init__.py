"""The `fleet-agent` command: facts about this machine, and what its agent keeps running."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from types import ModuleType

from agent.cli.commands import COMMANDS, foreign_names
from reconciler import __version__
from reconciler.api.errors import UsageError
from reconciler.console.command import listed
from reconciler.console.edge import Exit, guarded, width_of
from reconciler.console.log_lines import prepare_logs
from reconciler.console.option import add
from reconciler.console.parser import Parser, no_command
from reconciler.console.shared import STATE_DIR
from reconciler.report.terminal import hanging


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; exit codes as `reconcile`."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    return guarded(lambda: _dispatch(arguments), "fleet-agent")


def _dispatch(arguments: list[str]) -> int:
    first, *rest = arguments or [""]
    if not first:
        print(_overview(width_of(sys.stderr)), file=sys.stderr)
        return Exit.USAGE
    if first in ("-h", "--help"):
        print(_overview(width_of(sys.stdout)))
        return Exit.OK
    if first == "--version":
        print(f"fleet-agent {__version__}")
        return Exit.OK
    if first.startswith("-"):
        raise UsageError(f"{first}: the command comes first: fleet-agent COMMAND {first} ...")
    if first not in COMMANDS:
        raise no_command(first, "fleet-agent", COMMANDS, foreign_names())
    args = parser_of(first).parse_args(rest)
    prepare_logs()
    return int(_module(first).run(args))


def _overview(width: int | None) -> str:
    """`width`: of the terminal, None where lines have no end."""
    lines = (
        (0, "usage: fleet-agent COMMAND ..."),
        (0, ""),
        (0, "Facts about this machine, and what its agent keeps running."),
        (0, ""),
        *listed(COMMANDS),
        (0, ""),
        (0, "`fleet-agent COMMAND --help` lists the options of a command."),
    )
    return "\n".join(part for indent, line in lines for part in hanging(line, width, indent))


def parser_of(command: str) -> Parser:
    """What reads the words after a command."""
    module = _module(command)
    prog = f"fleet-agent {command}"
    own = Parser(prog=prog, description=module.__doc__, examples=module.EXAMPLES)
    add(own, (STATE_DIR,))
    if formats := COMMANDS[command].formats:
        own.add_argument("-o", "--output", choices=formats, default=formats[0])
    module.add_options(own)
    return own


def _module(command: str) -> ModuleType:
    return importlib.import_module(f"agent.cli.{command}")
