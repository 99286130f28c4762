"""The `reconcile` command: builds objects, calls, prints. Every command is one file and one row."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NoReturn

from reconciler import __version__
from reconciler.errors import InvalidFleet, ReconcilerError, UsageError

# A command's module is imported only when it is asked for: `reconcile --help` stays quick.
COMMANDS = {
    "run": "plan and apply: loop, --once, --watch or --dry-run (what a bare `reconcile` does)",
    "validate": "check every file of the fleet; opens no connection",
    "status": "what runs where, and how it is",
    "explain": "where an object goes, what it needs, how it is started, and why",
    "render": "the commands that the fleet's services become",
    "schema": "write the JSON Schemas of the kinds",
    "demo": "serve a small real model from a private copy of the example fleet",
}


class Exit(IntEnum):
    """The exit codes of every command."""

    OK = 0
    FAILED = 1
    CHANGES = 2
    BLOCKED = 3
    USAGE = 64
    BUG = 70
    INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is in `Exit`. Errors for people go to stderr."""
    words = list(sys.argv[1:] if argv is None else argv)
    return guarded(lambda: _dispatch(words), "reconcile")


def guarded(run: Callable[[], int], program: str) -> int:
    """Turn whatever a run ends in into an exit code, with words and without a traceback."""
    try:
        return run()
    except UsageError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return Exit.USAGE
    except InvalidFleet as error:
        print(error, file=sys.stderr)
        return Exit.FAILED
    except ReconcilerError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return Exit.FAILED
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`| head`): nothing is wrong, and nothing may be written any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    except OSError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return Exit.FAILED
    except Exception as error:  # the outermost edge: said as a bug of ours
        if os.environ.get("FLEET_DEBUG"):
            raise
        print(
            f"{program}: a bug of ours: {type(error).__name__}: {error}\n"
            "Please report it; with FLEET_DEBUG=1 set, the same command prints where it happened.",
            file=sys.stderr,
        )
        return Exit.BUG


class Parser(argparse.ArgumentParser):
    """argparse with the exit code of this program."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `{self.prog} --help`")


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
    return int(module.run(parser.parse_args(rest)))


# Options that take a value and may stand before the command's name.
_VALUED = ("-C", "--ref", "--path", "--cluster", "-o", "--output")


def _split(words: list[str]) -> tuple[str | None, list[str]]:
    """The command's name, wherever it stands, and the other words in their order."""
    skip = False
    for i, word in enumerate(words):
        if skip:
            skip = False
        elif word in _VALUED:
            skip = True
        elif not word.startswith("-"):
            if word in COMMANDS:
                return word, words[:i] + words[i + 1 :]
            from difflib import get_close_matches

            near = get_close_matches(word, COMMANDS, 1)
            hint = f"; did you mean `{near[0]}`?" if near else "; see `reconcile --help`"
            raise UsageError(f"no command named {word!r}{hint}")
    return None, words


def add_fleet_options(parser: argparse.ArgumentParser) -> None:
    """What every command accepts, before and after its name."""
    fleet = parser.add_argument_group("the fleet")
    fleet.add_argument(
        "-C", dest="fleet", default=".", metavar="FLEET", help="a path or a git URL (default: .)"
    )
    fleet.add_argument("--ref", help="a branch, tag or commit of a git repository")
    fleet.add_argument("--path", metavar="DIR", help="only this folder of the fleet")
    fleet.add_argument("--cluster", action="append", default=[], help=argparse.SUPPRESS)
    fleet.add_argument("-o", "--output", metavar="FORMAT", default="text", help="text, json, ...")
    git = parser.add_argument_group("git credentials (each also an environment variable)")
    for name in ("git-token-file", "ssh-key-file", "known-hosts-file", "ca-file"):
        variable = "FLEET_" + name.upper().replace("-", "_")
        git.add_argument(f"--{name}", default=os.environ.get(variable), help=f"or ${variable}")


def _overview() -> str:
    rows = "\n".join(f"  {name:<10} {summary}" for name, summary in COMMANDS.items())
    return (
        "usage: reconcile [-C FLEET] [--once | --watch | --dry-run] [--local[=NODE]] [-o FORMAT]\n"
        "       reconcile COMMAND [options]\n\n"
        "Keeps the machines of an LLM fleet equal to a git repository, and says first what would"
        " happen.\n\n"
        f"commands:\n{rows}\n\n"
        "`reconcile COMMAND --help` lists a command's options; `reconcile run --help` those of a"
        " bare `reconcile`.\n"
        "exit codes: 0 nothing to do, 1 invalid or failed, 2 changes, 3 blocked or unreachable,"
        " 64 usage, 70 our bug, 130 interrupted"
    )
