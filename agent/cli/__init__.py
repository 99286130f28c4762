"""The `fleet-agent` command: facts about this machine, and what its agent keeps running."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from types import ModuleType

from reconciler import __version__
from reconciler.edge import Exit, Parser, guarded
from reconciler.option import STATE_DIR, add

# A command's module is imported when it is asked for, and imports the agent when it runs.
COMMANDS = {
    "accept": "follow a head of the fleet's branch that is held",
    "run": "be this machine's agent: follow the fleet and keep its services running",
    "restart": "start services anew, also what was stopped by hand",
    "install": "make the agent a service of this machine",
    "uninstall": "take that service away again, and stop what it runs",
    "fetch": "bring models here ahead of time",
    "store": "list, verify, import and clean up the models that are here",
    "pod": "in a pod, beside an engine: fetch its models, wait for them, say when it is ready",
    "probe": "print this machine as a FleetNode",
    "status": "what this machine's records say, and whether it answers",
    "stop": "drain and stop services that were started here",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; exit codes as `reconcile`."""
    words = list(sys.argv[1:] if argv is None else argv)
    return guarded(lambda: _dispatch(words), "fleet-agent")


def _dispatch(words: list[str]) -> int:
    parser = Parser(prog="fleet-agent", description=__doc__)
    parser.add_argument("--version", action="version", version=f"fleet-agent {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for name, summary in COMMANDS.items():
        commands.add_parser(name, help=summary, add_help=False)
    if not words:
        parser.print_help(sys.stderr)
        return Exit.USAGE
    known, rest = parser.parse_known_args(words[:1]), words[1:]
    module = _module(known[0].command)
    return int(module.run(parser_of(known[0].command).parse_args(rest)))


def parser_of(command: str) -> Parser:
    """What reads the words after a command."""
    module = _module(command)
    own = Parser(prog=f"fleet-agent {command}", description=module.__doc__)
    add(own, (STATE_DIR,))
    own.add_argument("-o", "--output", choices=("text", "json"), default="text")
    module.add_options(own)
    return own


def _module(command: str) -> ModuleType:
    return importlib.import_module(f"agent.cli.{command}")
