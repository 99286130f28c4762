"""The `fleet-agent` command: facts about this machine, and what its agent keeps running."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from types import ModuleType

from agent.cli.commands import COMMANDS, foreign_names
from reconciler import __version__
from reconciler.api.errors import UsageError
from reconciler.console.edge import Exit, Parser, guarded, no_command
from reconciler.console.option import add
from reconciler.console.shared import STATE_DIR


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; exit codes as `reconcile`."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    return guarded(lambda: _dispatch(arguments), "fleet-agent")


def _dispatch(arguments: list[str]) -> int:
    parser = Parser(prog="fleet-agent", description=__doc__)
    parser.add_argument("--version", action="version", version=f"fleet-agent {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for name, row in COMMANDS.items():
        commands.add_parser(name, help=row.summary, add_help=False)
    if not arguments:
        parser.print_help(sys.stderr)
        return Exit.USAGE
    if not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        raise no_command(arguments[0], "fleet-agent", COMMANDS, foreign_names())
    command = parser.parse_known_args(arguments[:1])[0].command
    if command is None:
        raise UsageError(
            f"{arguments[0]}: the command comes first: fleet-agent COMMAND {arguments[0]} ..."
        )
    return int(_module(command).run(parser_of(command).parse_args(arguments[1:])))


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
