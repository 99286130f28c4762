"""Print what makes a shell complete commands, options and the names of a fleet.

Names are those of services, nodes and models in the files of the folder that one is in.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from reconciler.console.edge import Exit
from reconciler.console.parser import Parser

EXAMPLES = {
    "reconcile completion bash": "into ~/.local/share/bash-completion/completions/reconcile",
    "reconcile completion zsh": "into _reconcile in a folder of zsh's fpath",
    "reconcile completion fish": "into ~/.config/fish/completions/reconcile.fish",
    "reconcile completion fish --agent": "of `fleet-agent`, into fleet-agent.fish there",
}
_SHELLS = ("bash", "zsh", "fish")
_KINDS = {"service": "InferenceService", "model": "Model", "node": "FleetNode"}
# the command and its argument -> the names that it takes
_TAKEN: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("ask", "name"): "service,model",
        ("bench", "names"): "service",
        ("deploy", "name"): "model",
        ("explain", "object"): "service",
        ("logs", "name"): "service",
        ("open", "name"): "service,node",
        ("restart", "names"): "service",
        ("resume", "names"): "service",
        ("rm", "names"): "service,ref",
        ("status", "names"): "service",
        ("stop", "names"): "service",
        ("suspend", "names"): "service",
    }
)
_OF_ANY = {"local": "node", "node": "node"}  # options of any command


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", nargs="?", choices=_SHELLS, help="which one")
    parser.add_argument("--agent", action="store_true", help="of `fleet-agent`, not of `reconcile`")
    parser.add_argument("--names", metavar="KINDS", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Exit 0. Raises UsageError."""
    if args.names:  # with each key: nothing more is imported
        for name in sorted(_names(args.names.split(","))):
            print(name)
        return Exit.OK
    if args.shell is None:
        from reconciler.api.errors import UsageError

        raise UsageError(f"say which shell: {', '.join(_SHELLS)}")
    import shtab

    print(shtab.complete(whole_parser("fleet-agent" if args.agent else "reconcile"), args.shell))
    return Exit.OK


def whole_parser(program: str) -> Parser:
    """One parser of all commands of a program, which knows what each argument may be."""
    import agent.cli
    from agent.cli.commands import COMMANDS as AGENTS_OWN
    from reconciler.cli import parser_of
    from reconciler.cli.commands import COMMANDS

    is_ours = program == "reconcile"
    commands, make = (COMMANDS, parser_of) if is_ours else (AGENTS_OWN, agent.cli.parser_of)
    root = parser_of(None) if is_ours else Parser(prog=program)

    def of_command(prog: str, **_: object) -> Parser:
        name = prog.rpartition(" ")[2]
        parser = make(name)
        _teach(name, parser, commands[name].formats)
        return parser

    _teach("run", root, commands["run"].formats)
    made: Any = of_command  # a class is expected, and called like this
    below = root.add_subparsers(dest="command", metavar="COMMAND", parser_class=made)
    for name, row in commands.items():
        below.add_parser(name, help=row.summary)
    return root


def _teach(command: str, parser: Parser, formats: tuple[str, ...]) -> None:
    """Note what values each argument takes, where its parser does not say so."""
    import shtab

    from reconciler.cli.commands import COMMANDS

    files = {"FILE": shtab.FILE, "PATH": shtab.FILE, "DIR": shtab.DIR, "FLEET": shtab.DIR}
    for action in parser._actions:
        kinds = _TAKEN.get((command, action.dest)) or _OF_ANY.get(action.dest)
        if kinds and action.nargs != 0:
            _set(action, shtab.cmd(f"reconcile completion --names {kinds} 2>/dev/null"))
        elif isinstance(action.metavar, str) and action.metavar in files:
            _set(action, files[action.metavar])
        elif action.dest == "output" and action.choices is None:
            names = (name.partition(" (")[0] for name in formats)
            action.choices = [name for name in names if " " not in name]
        elif (command, action.dest) == ("help", "command"):
            action.choices = list(COMMANDS)


def _set(action: argparse.Action, complete: Mapping[str, Any]) -> None:
    vars(action)["complete"] = complete  # what shtab looks for


def _names(wanted: list[str]) -> set[str]:
    from reconciler.cli.fleet_names import declared_names

    names: set[str] = set()
    for kind, name in declared_names(Path()):
        names |= {name for word in wanted if _KINDS.get(word) == kind}
        if "ref" in wanted and kind in _KINDS.values():
            names.add(f"{kind.lower()}/{name}")
    return names
