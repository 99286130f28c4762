"""List the commands, or the options of one."""

from __future__ import annotations

import argparse
import sys

from reconciler.cli.commands import COMMANDS, foreign_names
from reconciler.console.edge import Exit, no_command, width_of

EXAMPLES = {
    "reconcile help": "every command",
    "reconcile help plan": "the options of one",
    "reconcile help plan --all": "also those that it shares with others",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("command", nargs="?", metavar="COMMAND", help="whose options")
    parser.add_argument("--all", action="store_true", help="also those that most commands have")


def run(args: argparse.Namespace) -> int:
    from reconciler.cli import overview, parser_of

    if args.command is None:
        print(overview(width_of(sys.stdout)))
    elif args.command in COMMANDS:
        parser_of(args.command).print_help(everything=args.all)
    else:
        raise no_command(args.command, "reconcile", COMMANDS, foreign_names())
    return Exit.OK
