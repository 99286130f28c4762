"""The `fleet-agent` command: facts about this machine, and what its agent keeps running."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from types import ModuleType

from reconciler import __version__
from reconciler.api.errors import UsageError
from reconciler.console.edge import Exit, Parser, guarded, no_command
from reconciler.console.option import add
from reconciler.console.shared import STATE_DIR

# A command's module is imported when it is asked for, and imports the agent when it runs.
COMMANDS = {
    "accept": "follow a head of the fleet's branch that is held",
    "run": "be this machine's agent: follow the fleet and keep its services running",
    "restart": "restart services, also what was stopped by hand",
    "install": "make the agent a service of this machine",
    "uninstall": "take that service away again, and stop what it runs",
    "fetch": "bring models here ahead of time",
    "store": "list, verify, import and clean up the models that are here",
    "pod": "in a pod, beside an engine: fetch its models, wait for them, say when it is ready",
    "doctor": "say whether the engines of this machine run, with a tiny model and no download",
    "label": "keep this machine's Node in a cluster labelled with its hardware",
    "bench": "measure how fast the models that run here answer",
    "probe": "print this machine as a FleetNode",
    "status": "what this machine's records say, and whether it answers",
    "leftovers": "what else of ours runs on this machine, and the command that ends it",
    "logs": "print what a service's engine writes",
    "stop": "drain and stop services that were started here",
}

# What other tools, and the other program, call it.
_ELSEWHERE = {
    **dict.fromkeys(("start", "reload"), "restart"),
    **dict.fromkeys(("up", "serve", "daemon", "sync"), "run"),
    **dict.fromkeys(("get", "ps", "list", "ls"), "status"),
    **dict.fromkeys(("pull", "download"), "fetch"),
    **dict.fromkeys(("down", "kill"), "stop"),
    **dict.fromkeys(("benchmark", "measure"), "bench"),
    **{word: f"fleet-agent store {word}" for word in ("verify", "import", "gc")},
    **dict.fromkeys(("plan", "diff"), "reconcile --dry-run --local"),
    "apply": "reconcile --once --local",
    **{word: f"reconcile {word}" for word in ("validate", "explain", "render", "deploy", "schema")},
}
# logs says why it does not
_PRINTS_JSON = ("bench", "doctor", "fetch", "leftovers", "logs", "probe", "status", "store")


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
    if not words[0].startswith("-") and words[0] not in COMMANDS:
        raise no_command(words[0], "fleet-agent", COMMANDS, _ELSEWHERE)
    command = parser.parse_known_args(words[:1])[0].command
    if command is None:
        raise UsageError(f"{words[0]}: the command comes first: fleet-agent COMMAND {words[0]} ...")
    return int(_module(command).run(parser_of(command).parse_args(words[1:])))


def parser_of(command: str) -> Parser:
    """What reads the words after a command."""
    module = _module(command)
    prog = f"fleet-agent {command}"
    own = Parser(prog=prog, description=module.__doc__, examples=module.EXAMPLES)
    add(own, (STATE_DIR,))
    if command in _PRINTS_JSON:
        own.add_argument("-o", "--output", choices=("text", "json"), default="text")
    module.add_options(own)
    return own


def _module(command: str) -> ModuleType:
    return importlib.import_module(f"agent.cli.{command}")
