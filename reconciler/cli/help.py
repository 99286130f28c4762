"""List the commands, or the options of one, or print a manual page of all."""

from __future__ import annotations

import argparse
import sys

from reconciler.cli.commands import COMMANDS, foreign_names
from reconciler.console.edge import Exit, width_of
from reconciler.console.parser import no_command

EXAMPLES = {
    "reconcile help": "every command",
    "reconcile help plan": "the options of one",
    "reconcile help plan --all": "also those that it shares with others",
    "reconcile help --man": "the manual page, for reconcile.1 in a man1 folder",
    "reconcile help --man --agent": "that of `fleet-agent`",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("command", nargs="?", metavar="COMMAND", help="whose options")
    parser.add_argument("--all", action="store_true", help="also those that most commands have")
    parser.add_argument("--man", action="store_true", help="all of it, as a manual page")
    parser.add_argument("--agent", action="store_true", help="with --man: of `fleet-agent`")


def run(args: argparse.Namespace) -> int:
    from reconciler.cli import overview, parser_of

    if args.man:
        print(_manual("fleet-agent" if args.agent else "reconcile"), end="")
    elif args.command is None:
        print(overview(width_of(sys.stdout)))
    elif args.command in COMMANDS:
        parser_of(args.command).print_help(everything=args.all)
    else:
        raise no_command(args.command, "reconcile", COMMANDS, foreign_names())
    return Exit.OK


def _manual(program: str) -> str:
    import agent.cli
    from agent.cli.commands import COMMANDS as AGENTS_OWN
    from reconciler import __version__
    from reconciler.cli import parser_of
    from reconciler.console.man import man_page

    if program == "reconcile":
        about = "keep machines and clusters of an LLM fleet equal to a git repository"
        parsers = {name: parser_of(name) for name in COMMANDS}
    else:
        about = "keep what a fleet declares running on this machine"
        parsers = {name: agent.cli.parser_of(name) for name in AGENTS_OWN}
    return man_page(program, __version__, about, parsers)
