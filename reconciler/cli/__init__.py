"""The `reconcile` command: builds objects, calls, prints. Every command is one file, and one row of
`commands.py`."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Sequence
from types import ModuleType

from reconciler import __version__
from reconciler.cli.commands import COMMANDS, foreign_names
from reconciler.console.command import listed
from reconciler.console.edge import Exit, guarded, width_of
from reconciler.console.parser import Parser, no_command
from reconciler.report.terminal import hanging

# Options whose value could be mistaken for a command's name.
_VALUED = ("-C", "--ref", "--path", "--cluster", "-o", "--output", "--from", "--state-dir")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is in `Exit`. Errors for people go to stderr."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    return guarded(lambda: _dispatch(arguments), "reconcile")


def _dispatch(arguments: list[str]) -> int:
    command, rest = split_command(arguments)
    if command is None and any(word in ("-h", "--help") for word in arguments):
        print(overview(width_of(sys.stdout)))
        return Exit.OK
    if "--version" in arguments:
        print(f"reconcile {__version__}")
        return Exit.OK
    row = COMMANDS[command or "run"]
    parser = parser_of(command)
    args = parser.parse_intermixed_args(rest) if row.interleaves else parser.parse_args(rest)
    if row.makes_no_garbage or getattr(args, "dry_run", False):
        gc.disable()  # looking for some took a third of the time of a large plan
    if row.logs:
        from reconciler.console.log_lines import prepare_logs

        prepare_logs()
    return int(_module(command).run(args))


def parser_of(command: str | None) -> Parser:
    """What reads the other words of a command line; None: of one without a command."""
    module = _module(command)
    prog = f"reconcile {command}" if command else "reconcile"
    parser = Parser(prog=prog, description=module.__doc__, examples=module.EXAMPLES)
    if formats := COMMANDS[command or "run"].formats:
        from reconciler.cli.options import add_fleet_options  # half the time of `--help`

        add_fleet_options(parser, formats)
    module.add_options(parser)
    return parser


def _module(command: str | None) -> ModuleType:
    return importlib.import_module(f"reconciler.cli.{command or 'run'}")


def split_command(arguments: list[str]) -> tuple[str | None, list[str]]:
    """The command's name, at any position, and the other words in their order."""
    before = ""
    for i, word in enumerate(arguments):
        if not word.startswith("-") and before not in _VALUED:
            if word in COMMANDS:
                return word, arguments[:i] + arguments[i + 1 :]
            if not before.startswith("-"):  # else it may be a value: the option's parser knows
                raise no_command(word, "reconcile", COMMANDS, foreign_names())
        before = word
    return None, arguments


def overview(width: int | None) -> str:
    """`width`: of the terminal, None where lines have no end."""
    from reconciler.report.legend import legend_text

    lines = (
        (17, "usage: reconcile COMMAND [-C FLEET] [--local[=NODE]] [--cluster NAME] [-o FORMAT]"
             " ..."),
        (0, "       reconcile [--once | --watch | --dry-run] ..."),
        (0, ""),
        (0, "Keeps the machines and clusters of an LLM fleet equal to a git repository, and says"
            " first what would happen."),
        (0, ""),
        *listed(COMMANDS),
        (0, ""),
        (0, "the marks of plans and statuses:"),
        *((7, line) for line in legend_text().splitlines()),
        (0, ""),
        (0, "`reconcile COMMAND --help` lists a command's own options, with --all also those that"
            " most commands have; `reconcile run --help` those of a bare `reconcile`."),
        (0, "exit codes: 0 nothing to do, 1 invalid or failed, 2 changes, 3 blocked or"
            " unreachable, 64 usage, 70 our bug, 130 interrupted"),
    )  # fmt: skip
    return "\n".join(part for indent, line in lines for part in hanging(line, width, indent))
