"""The `reconcile` command: builds objects, calls, prints. Every command is one file and one row."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Sequence

from reconciler import __version__
from reconciler.cli.options import add_fleet_options
from reconciler.edge import Exit, Parser, guarded
from reconciler.errors import UsageError

# A command's module is imported only when it is asked for: `reconcile --help` stays quick.
COMMANDS = {
    "run": "plan and apply: loop, --once, --watch or --dry-run (what a bare `reconcile` does)",
    "validate": "check every file of the fleet; opens no connection",
    "status": "what runs where, and how it is",
    "explain": "where an object goes, what it needs, how it is started, and why",
    "render": "the commands, or a cluster's objects, that the fleet's services become",
    "deploy": "write a model and its service into the fleet, if they fit",
    "install": "put the reconciler into a Kubernetes cluster, or make a node's agent known there",
    "uninstall": "take the reconciler out of a Kubernetes cluster",
    "schema": "write the JSON Schemas of the kinds",
    "demo": "serve a small real model from a private copy of the example fleet",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is in `Exit`. Errors for people go to stderr."""
    words = list(sys.argv[1:] if argv is None else argv)
    return guarded(lambda: _dispatch(words), "reconcile")


def _dispatch(words: list[str]) -> int:
    command, rest = _split(words)
    if command is None and any(word in ("-h", "--help") for word in words):
        print(_overview())
        return Exit.OK
    if "--version" in words:
        print(f"reconcile {__version__}")
        return Exit.OK
    module = importlib.import_module(f"reconciler.cli.{command or 'run'}")
    parser = Parser(
        prog=f"reconcile {command}" if command else "reconcile", description=module.__doc__
    )
    add_fleet_options(parser)
    module.add_options(parser)
    args = parser.parse_args(rest)
    if command in _AT_ONCE or getattr(args, "dry_run", False):
        # Nothing that these make is garbage before they end, and looking for it took a third of
        # the time of a large plan.
        gc.disable()
    return int(module.run(args))


_AT_ONCE = ("validate", "explain", "render", "schema")

# Options whose value could be mistaken for a command's name.
_VALUED = ("-C", "--ref", "--path", "--cluster", "-o", "--output", "--from", "--state-dir")


def _split(words: list[str]) -> tuple[str | None, list[str]]:
    """The command's name, wherever it stands, and the other words in their order."""
    before = ""
    for i, word in enumerate(words):
        if not word.startswith("-") and before not in _VALUED:
            if word in COMMANDS:
                return word, words[:i] + words[i + 1 :]
            if not before.startswith("-"):  # else it may be a value: the option's parser knows
                raise UsageError(_no_command(word))
        before = word
    return None, words


def _no_command(word: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, COMMANDS, 1)
    hint = f"did you mean `{near[0]}`?" if near else "see `reconcile --help`"
    return f"no command named {word!r}; {hint}"


def _overview() -> str:
    rows = "\n".join(f"  {name:<10} {summary}" for name, summary in COMMANDS.items())
    return (
        "usage: reconcile [-C FLEET] [--once | --watch | --dry-run] [--local[=NODE]]"
        " [--cluster NAME]\n                 [-o FORMAT]\n"
        "       reconcile COMMAND [options]\n\n"
        "Keeps the machines and clusters of an LLM fleet equal to a git repository, and says first"
        " what\nwould happen.\n\n"
        f"commands:\n{rows}\n\n"
        "`reconcile COMMAND --help` lists a command's options; `reconcile run --help` those of a"
        " bare `reconcile`.\n"
        "exit codes: 0 nothing to do, 1 invalid or failed, 2 changes, 3 blocked or unreachable,"
        " 64 usage, 70 our bug, 130 interrupted"
    )
