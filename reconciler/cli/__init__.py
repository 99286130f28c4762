"""The `reconcile` command: builds objects, calls, prints. Every command is one file and one row."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Sequence
from types import ModuleType

from reconciler import __version__
from reconciler.cli.options import add_fleet_options
from reconciler.console.edge import Exit, Parser, guarded, no_command, width_of
from reconciler.report.terminal import hanging

# A command's module is imported only when it is asked for: `reconcile --help` stays quick.
COMMANDS = {
    "run": "plan and apply: loop, --once, --watch or --dry-run (what a bare `reconcile` does)",
    "validate": "check every file of the fleet; without --cluster it opens no connection",
    "status": "what runs where, and how it is",
    "bench": "what machines have measured, and evidence of it for the repository",
    "explain": "where an object goes, what it needs, how it is started, and why",
    "render": "the commands, or a cluster's objects, that the fleet's services become",
    "deploy": "write a model and its service into the fleet, if they fit",
    "install": "put the reconciler into a Kubernetes cluster, or make a node's agent known there",
    "uninstall": "take the reconciler out of a Kubernetes cluster",
    "extender": "answer a kube-scheduler that asks which node is good for a service",
    "schema": "write the JSON Schemas of the kinds",
    "demo": "serve a small real model from a private copy of the example fleet",
}


# What other tools call it.
_ELSEWHERE = {
    **dict.fromkeys(("plan", "diff", "preview"), "reconcile --dry-run"),
    **dict.fromkeys(("apply", "up", "sync", "start"), "reconcile --once"),
    "watch": "reconcile --watch",
    **dict.fromkeys(("get", "ps", "list", "ls"), "status"),
    **dict.fromkeys(("describe", "show"), "explain"),
    **dict.fromkeys(("check", "lint"), "validate"),
    **dict.fromkeys(("benchmark", "measure"), "bench"),
    **dict.fromkeys(("template", "build"), "render"),
    **dict.fromkeys(("add", "new", "create"), "deploy"),
    **dict.fromkeys(("pull", "download"), "fleet-agent fetch"),
    **{
        word: f"fleet-agent {word}"
        for word in ("logs", "stop", "restart", "fetch", "store", "doctor", "probe", "accept")
    },
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is in `Exit`. Errors for people go to stderr."""
    words = list(sys.argv[1:] if argv is None else argv)
    return guarded(lambda: _dispatch(words), "reconcile")


def _dispatch(words: list[str]) -> int:
    command, rest = split_words(words)
    if command is None and any(word in ("-h", "--help") for word in words):
        print(_overview(width_of(sys.stdout)))
        return Exit.OK
    if "--version" in words:
        print(f"reconcile {__version__}")
        return Exit.OK
    args = parser_of(command).parse_args(rest)
    if command in _AT_ONCE or getattr(args, "dry_run", False):
        # Nothing that these make is garbage before they end, and looking for it took a third of
        # the time of a large plan.
        gc.disable()
    return int(_module(command).run(args))


def parser_of(command: str | None) -> Parser:
    """What reads the other words of a command line; None: of one without a command."""
    module = _module(command)
    prog = f"reconcile {command}" if command else "reconcile"
    parser = Parser(prog=prog, description=module.__doc__, examples=module.EXAMPLES)
    if command not in _WITHOUT_A_FLEET:
        add_fleet_options(parser, _FORMATS.get(command or "run", ("text", "json")))
    module.add_options(parser)
    return parser


def _module(command: str | None) -> ModuleType:
    return importlib.import_module(f"reconciler.cli.{command or 'run'}")


_WITHOUT_A_FLEET = ("schema", "demo", "extender")
# What -o takes, where it is not text and json. Not read from the commands' tables: see COMMANDS.
_FORMATS = {
    "validate": ("text", "json", "sarif", "github"),
    "render": ("text", "json", "or a folder to write files to"),
    "deploy": ("text",),
    "install": ("text",),
    "uninstall": ("text",),
}
_AT_ONCE = ("validate", "explain", "render", "schema")

# Options whose value could be mistaken for a command's name.
_VALUED = ("-C", "--ref", "--path", "--cluster", "-o", "--output", "--from", "--state-dir")


def split_words(words: list[str]) -> tuple[str | None, list[str]]:
    """The command's name, at any position, and the other words in their order."""
    before = ""
    for i, word in enumerate(words):
        if not word.startswith("-") and before not in _VALUED:
            if word in COMMANDS:
                return word, words[:i] + words[i + 1 :]
            if not before.startswith("-"):  # else it may be a value: the option's parser knows
                raise no_command(word, "reconcile", COMMANDS, _ELSEWHERE)
        before = word
    return None, words


def _overview(width: int | None) -> str:
    """`width`: of the terminal, None where lines have no end."""
    from reconciler.report.legend import legend_text

    lines = (
        (17, "usage: reconcile [-C FLEET] [--once | --watch | --dry-run] [--local[=NODE]]"
             " [--cluster NAME] [-o FORMAT]"),
        (0, "       reconcile COMMAND [options]"),
        (0, ""),
        (0, "Keeps the machines and clusters of an LLM fleet equal to a git repository, and says"
            " first what would happen."),
        (0, ""),
        (0, "commands:"),
        *((13, f"  {name:<10} {summary}") for name, summary in COMMANDS.items()),
        (0, ""),
        (0, "the marks of plans and statuses:"),
        *((7, line) for line in legend_text().splitlines()),
        (0, ""),
        (0, "`reconcile COMMAND --help` lists a command's options; `reconcile run --help` those of"
            " a bare `reconcile`."),
        (0, "exit codes: 0 nothing to do, 1 invalid or failed, 2 changes, 3 blocked or"
            " unreachable, 64 usage, 70 our bug, 130 interrupted"),
    )  # fmt: skip
    return "\n".join(part for indent, line in lines for part in hanging(line, width, indent))
